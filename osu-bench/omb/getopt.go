package omb

import (
	"errors"
	"fmt"

	"github.com/pborman/getopt/v2"
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
	short   rune // 0: has none
	long    string
	arg     argument
	kinds   kinds // programs that have it
	metavar string
	help    string
	set     func(o *Options, value string) error
}

// target is where getopt puts an option's argument.
type target struct {
	options *Options
	option  *option
}

func (t target) String() string { return "" }

func (t target) Set(value string, as getopt.Option) error {
	switch err := t.option.set(t.options, value); {
	case t.option.arg == none && value != "":
		return fmt.Errorf("%s takes no value (got %q)", as.Name(), value)
	case err != nil && t.option.arg == none:
		return fmt.Errorf("%s: %w", as.Name(), err)
	case err != nil:
		return fmt.Errorf("invalid %s %q: %w", as.Name(), value, err)
	}
	return nil
}

// parseOptions applies args to o. Unlike OMB's programs it refuses arguments
// that are no option's.
func parseOptions(o *Options, options []option, args []string) error {
	set := getopt.New()
	metavar := map[string]string{}
	for i := range options {
		p := &options[i]
		as := set.FlagLong(target{o, p}, p.long, p.short, p.help, p.metavar)
		switch p.arg {
		case none:
			as.SetFlag()
		case optional:
			as.SetOptional()
		}
		metavar["--"+p.long], metavar["-"+string(p.short)] = p.metavar, p.metavar
	}
	err := set.Getopt(append([]string{""}, args...), nil)
	if wrong := (*getopt.Error)(nil); errors.As(err, &wrong) {
		switch wrong.ErrorCode {
		case getopt.UnknownOption:
			return fmt.Errorf("unknown option %s", wrong.Name)
		case getopt.MissingParameter:
			return fmt.Errorf("%s needs %s", wrong.Name, metavar[wrong.Name])
		}
		return wrong.Err
	}
	if err != nil {
		return err
	}
	if set.NArgs() > 0 {
		return fmt.Errorf("unexpected argument %q (the optional argument of -z follows without a space, as in -z50,90)", set.Arg(0))
	}
	return nil
}
