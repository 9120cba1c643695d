package cmdline

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// arrange returns a command line as cli wants it: "help COMMAND" becomes
// "COMMAND --help", and flags come before arguments.
func (p *Program) arrange(args []string) ([]string, error) {
	if len(args) > 2 && args[1] == "help" {
		return helpOf(p.App, args)
	}
	c, n := findCommand(p.App, args)
	if c == nil || isGroup(c) {
		return args, nil
	}
	flags, rest := flagsFirst(c, args[n:])
	if slices.ContainsFunc(flags, isHelp) {
		return append(slices.Clone(args[:n]), "--help"), nil // cli would take an argument for a command to print the help of
	}
	return slices.Concat(args[:n], flags, rest), nil
}

// helpOf returns the command line that prints the help which "help COMMAND..."
// asks for.
func helpOf(app *cli.App, args []string) ([]string, error) {
	path := slices.Concat(args[:1], args[2:])
	c, n := findCommand(app, path)
	if n == len(path) {
		return append(path, "--help"), nil
	}
	among := app.Commands
	if c != nil {
		among = c.Subcommands
	}
	return nil, Usage(unknownCommand(path[n], among))
}

// findCommand returns the command that a command line names, and how many
// words do so; nil for the program itself.
func findCommand(app *cli.App, args []string) (*cli.Command, int) {
	var found *cli.Command
	n, among := min(1, len(args)), app.Commands
	for ; n < len(args); n++ {
		i := slices.IndexFunc(among, func(c *cli.Command) bool { return c.HasName(args[n]) })
		if i < 0 {
			break
		}
		found, among = among[i], among[i].Subcommands
	}
	return found, n
}

// resolve returns the command that a command line names, nil for the program
// itself, and its full name.
func resolve(app *cli.App, args []string) (*cli.Command, string) {
	c, _ := findCommand(app, args)
	if c == nil {
		return nil, app.Name
	}
	return c, c.HelpName
}

// isHelp reports whether a word is the flag for help.
func isHelp(word string) bool {
	name, given := flagName(word)
	return !given && slices.Contains(cli.HelpFlag.Names(), name)
}

// ProgramArguments is the ArgsUsage of a command that runs another program: what comes after the first
// argument is that program's, flags and all.
const ProgramArguments = "PROGRAM [ARGUMENTS...]"

// flagsFirst parts the flags of a command from its arguments, before which they
// must come: people write "explain reduce 64M --nodes 4", and cli stops at the
// first argument.
func flagsFirst(c *cli.Command, args []string) (flags, rest []string) {
	for i := 0; i < len(args); i++ {
		a := args[i]
		name, given := flagName(a)
		switch {
		case a == "--":
			return flags, slices.Concat(args[i:i+1], rest, args[i+1:])
		case name == "" && c.ArgsUsage == ProgramArguments:
			return flags, slices.Concat([]string{"--"}, args[i:])
		case name == "":
			rest = append(rest, a)
		case !given && takesValue(c, name) && i+1 < len(args):
			flags = append(flags, a, args[i+1])
			i++
		default:
			flags = append(flags, a)
		}
	}
	return flags, rest
}

// flagName returns the name of the flag that a word is, "" for an argument,
// and whether the word holds a value, too: "--bucket=4M".
func flagName(word string) (name string, given bool) {
	name = strings.TrimLeft(word, "-")
	if name == word {
		return "", false
	}
	name, _, given = strings.Cut(name, "=")
	return name, given
}

// takesValue reports whether a flag of c takes a value. One that there is not
// does not.
func takesValue(c *cli.Command, name string) bool {
	f, ok := findFlag(c.Flags, name).(cli.DocGenerationFlag)
	return ok && f.TakesValue()
}

// findFlag returns the flag of a name, or nil.
func findFlag(flags []cli.Flag, name string) cli.Flag {
	i := slices.IndexFunc(flags, func(f cli.Flag) bool { return slices.Contains(f.Names(), name) })
	if i < 0 {
		return nil
	}
	return flags[i]
}
