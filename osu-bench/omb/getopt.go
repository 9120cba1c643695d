package omb

import (
	"fmt"
	"slices"
	"strings"
)

// argument says whether an option takes one.
type argument uint8

const (
	none     argument = iota
	required          // -i 10, -i10, --iterations 10, --iterations=10
	optional          // -z, -z50,90, --tail-lat, --tail-lat=50,90
)

// option is one option of a program, as getopt_long of the C library knows it
// and OMB therefore does.
type option struct {
	short   byte // 0: has none
	long    string
	arg     argument
	kinds   kinds // programs that have it
	metavar string
	help    string
	set     func(o *Options, value string) error
}

// name returns the option as people write it: "-i" or "--local".
func (p *option) name() string {
	if p.short != 0 {
		return "-" + string(p.short)
	}
	return "--" + p.long
}

// getopt applies args to o. Like OMB's it stops at the first word that is no
// option; unlike OMB's it then says that the word has no meaning.
func getopt(o *Options, options []option, args []string) error {
	for len(args) > 0 {
		word := args[0]
		args = args[1:]
		var err error
		switch {
		case word == "--" && len(args) == 0:
			return nil
		case word == "--" || word == "-" || !strings.HasPrefix(word, "-"):
			return unexpected(word, args)
		case strings.HasPrefix(word, "--"):
			args, err = long(o, options, word[2:], args)
		default:
			args, err = short(o, options, word[1:], args)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func unexpected(word string, rest []string) error {
	if word == "--" {
		word = rest[0]
	}
	return fmt.Errorf("unexpected argument %q (the optional arguments of -z and -c follow without a space, as in -z50,90): see -h", word)
}

// short applies a word of short options: -f, -fc, -i10.
func short(o *Options, options []option, word string, args []string) ([]string, error) {
	for word != "" {
		i := slices.IndexFunc(options, func(p option) bool { return p.short == word[0] })
		if i < 0 {
			return nil, fmt.Errorf("invalid option -%c: see -h for those that there are", word[0])
		}
		p := &options[i]
		word = word[1:]
		switch {
		case p.arg == required && word == "" && len(args) == 0:
			return nil, fmt.Errorf("option %s needs %s", p.name(), p.metavar)
		case p.arg == required && word == "":
			word, args = args[0], args[1:]
		case p.arg == none:
			if err := apply(o, p, ""); err != nil {
				return nil, err
			}
			continue
		}
		return args, apply(o, p, word)
	}
	return args, nil
}

// long applies a long option, whose name may be cut short where that leaves
// no doubt.
func long(o *Options, options []option, word string, args []string) ([]string, error) {
	name, value, given := strings.Cut(word, "=")
	p, err := find(options, name)
	switch {
	case err != nil:
		return nil, err
	case p.arg == none && given:
		return nil, fmt.Errorf("option --%s takes no argument %q", p.long, value)
	case p.arg == required && !given && len(args) == 0:
		return nil, fmt.Errorf("option --%s needs %s", p.long, p.metavar)
	case p.arg == required && !given:
		value, args = args[0], args[1:]
	}
	return args, apply(o, p, value)
}

func find(options []option, name string) (*option, error) {
	var found []*option
	for i := range options {
		p := &options[i]
		if p.long == name {
			return p, nil
		}
		if strings.HasPrefix(p.long, name) {
			found = append(found, p)
		}
	}
	switch len(found) {
	case 0:
		return nil, fmt.Errorf("invalid option --%s: see -h for those that there are", name)
	case 1:
		return found[0], nil
	}
	return nil, fmt.Errorf("option --%s may be --%s or --%s", name, found[0].long, found[1].long)
}

func apply(o *Options, p *option, value string) error {
	if err := p.set(o, value); err != nil {
		if p.arg == none {
			return fmt.Errorf("option %s: %w", p.name(), err)
		}
		return fmt.Errorf("option %s %s: %w", p.name(), value, err)
	}
	return nil
}
