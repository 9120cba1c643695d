package cmdline

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// completeCommand is what the shells' scripts call, with the words up to the
// cursor. It is not a command for people.
const completeCommand = "__complete"

// The scripts; PROGRAM stands for the program's name.
var (
	//go:embed complete.bash
	bashScript string
	//go:embed complete.zsh
	zshScript string
	//go:embed complete.fish
	fishScript string
)

// complete prints what the last of some words may become: one candidate a
// line, a tab, and what it is. Nothing means a file.
func (p *Program) complete(words []string) error {
	if len(words) == 0 {
		words = []string{""}
	}
	for _, c := range p.candidates(words[:len(words)-1], words[len(words)-1]) {
		fmt.Fprintf(p.Stdout, "%s\t%s\n", c.word, c.about)
	}
	return nil
}

// candidate is a word that may come next.
type candidate struct{ word, about string }

// candidates are those that continue last, after some words.
func (p *Program) candidates(before []string, last string) []candidate {
	line := slices.Concat([]string{p.App.Name}, before)
	if len(before) > 0 && before[0] == "help" {
		line = slices.Delete(line, 1, 2)
	}
	c, n := findCommand(p.App, line)
	flags, commands := p.App.Flags, p.App.Commands
	if c != nil {
		flags, commands = c.Flags, c.Subcommands
	}
	var all []candidate
	name, given := flagName(last)
	switch previous := line[len(line)-1]; {
	case slices.Contains(before, "--"):
	case given: // --design=SC
		head, _, _ := strings.Cut(last, "=")
		for _, w := range valueWords(findFlag(flags, name)) {
			all = append(all, candidate{head + "=" + w, ""})
		}
	case c != nil && expectsValue(c, previous):
		name, _ := flagName(previous)
		for _, w := range valueWords(findFlag(flags, name)) {
			all = append(all, candidate{w, ""})
		}
	case name != "" || last == "-" || last == "--":
		all = flagCandidates(flags)
	default:
		if c != nil && !isGroup(c) {
			all = argumentCandidates(c, line[n:])
		}
		if n < len(line) {
			break
		}
		for _, sub := range commands {
			if !sub.Hidden {
				all = append(all, candidate{sub.Name, sub.Usage})
			}
		}
	}
	return slices.DeleteFunc(all, func(c candidate) bool { return !strings.HasPrefix(c.word, last) })
}

// argumentCandidates are the words that the next argument of c may be, which
// its ArgsUsage separates: "reduce|bcast|allreduce BYTES".
func argumentCandidates(c *cli.Command, before []string) (all []candidate) {
	_, given := flagsFirst(c, before)
	places := strings.Fields(c.ArgsUsage)
	if len(given) >= len(places) || !strings.Contains(places[len(given)], "|") {
		return nil
	}
	for _, w := range strings.Split(places[len(given)], "|") {
		all = append(all, candidate{w, ""})
	}
	return all
}

// expectsValue reports whether a word is a flag of c whose value comes next.
func expectsValue(c *cli.Command, word string) bool {
	name, given := flagName(word)
	return name != "" && !given && takesValue(c, name)
}

// flagCandidates are the visible flags; --help, which cli adds later, is one.
func flagCandidates(flags []cli.Flag) []candidate {
	var all []candidate
	for _, f := range flags {
		d, ok := f.(cli.DocGenerationFlag)
		if v, visible := f.(cli.VisibleFlag); ok && visible && v.IsVisible() {
			all = append(all, candidate{dashed(f.Names()[0]), strings.ReplaceAll(d.GetUsage(), "`", "")})
		}
	}
	return append(all, candidate{"--help", "print help"})
}

// valueWords are the values that a flag is known to have.
func valueWords(f cli.Flag) []string {
	if g, ok := f.(*cli.GenericFlag); ok {
		if v, ok := g.Value.(*value); ok {
			return v.words
		}
	}
	return nil
}

// completionCommand prints a shell's script.
func completionCommand(program string) *cli.Command {
	scripts := map[string]*string{"bash": &bashScript, "zsh": &zshScript, "fish": &fishScript}
	c := &cli.Command{Name: "completion", Usage: "print a shell's completion script"}
	for _, shell := range []struct{ name, load string }{
		{"bash", "source <(PROGRAM completion bash)"},
		{"zsh", "source <(PROGRAM completion zsh)"},
		{"fish", "PROGRAM completion fish | source"},
	} {
		c.Subcommands = append(c.Subcommands, &cli.Command{
			Name: shell.name, Usage: "print the completion script for " + shell.name, Before: NoArguments,
			Description: "For the current shell, run\n  " + strings.ReplaceAll(shell.load, "PROGRAM", program),
			Action: func(ctx *cli.Context) error {
				_, err := fmt.Fprint(ctx.App.Writer, strings.ReplaceAll(*scripts[shell.name], "PROGRAM", program))
				return err
			},
		})
	}
	return c
}
