// Package cmdline completes urfave/cli for a program of several commands, so
// that its command line behaves as those of go, gh and kubectl do:
//
//   - Flags may follow arguments.
//   - What is wrong with a command line is said on stderr, with a hint and,
//     for a misspelled command or flag, a suggestion; the status is 2. Other
//     errors end with status 1.
//   - Nothing but results goes to stdout, and results that cannot be written
//     there are an error.
//   - "help COMMAND" and "COMMAND --help" are the same.
//   - Shell completion and the man page come from the commands' definitions.
//
// The flags of this package check their values when they are read, so that a
// mistake is named before anything runs:
//
//	cmdline.Choice("format", "text", "output `FORMAT`", "text", "csv", "json")
//	cmdline.Int("iterations", 20, 1, "measure `N` iterations")
//
// It owns the command line. It must not know any command.
package cmdline

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/scaffe/scaffe/internal/output"
)

// Program is a program with commands.
type Program struct {
	// App holds the commands. Main takes over its writers and its handlers.
	App *cli.App
	// Stdout takes results, such as output.Stdout; Stderr everything else.
	Stdout *output.Writer
	Stderr io.Writer
	// Reported, if not nil, is an error that has been reported already: nothing
	// is printed for it.
	Reported error
	// Brief leaves the hints out, for one of many processes that say the same.
	Brief bool
}

// Statuses of a program.
const (
	statusOK    = 0
	statusError = 1
	statusUsage = 2
)

// UsageError is an error in the command line itself.
type UsageError struct {
	Err     error
	Command string // the command that it belongs to, such as "scaffe trace svg"; empty: not known
}

func (e *UsageError) Error() string { return e.Err.Error() }

// Unwrap returns the error without the command.
func (e *UsageError) Unwrap() error { return e.Err }

// Usage marks err, unless nil, as an error in the command line.
func Usage(err error) error {
	if err == nil {
		return nil
	}
	return &UsageError{Err: err}
}

// Usagef is Usage(fmt.Errorf(format, args...)).
func Usagef(format string, args ...any) error { return Usage(fmt.Errorf(format, args...)) }

// Main runs the program with a command line, whose first word is the program's
// own name, and returns the status to exit with.
func (p *Program) Main(ctx context.Context, args []string) int {
	err := p.run(ctx, args)
	lost := p.Stdout.Err()
	if lost != nil && (err == nil || !strings.Contains(err.Error(), lost.Error())) {
		defer fmt.Fprintf(p.Stderr, "%s: %v\n", p.App.Name, lost)
	}
	var usage *UsageError
	switch {
	case err == nil && lost == nil:
		return statusOK
	case err == nil || p.Reported != nil && errors.Is(err, p.Reported):
		return statusError
	}
	fmt.Fprintf(p.Stderr, "%s: %v\n", p.App.Name, err)
	if !errors.As(err, &usage) {
		return statusError
	}
	if !p.Brief {
		p.hint(usage.Command)
	}
	return statusUsage
}

// hint says how a command is used, and where there is more.
func (p *Program) hint(path string) {
	c, path := resolve(p.App, strings.Fields(path))
	if c != nil {
		fmt.Fprintf(p.Stderr, "usage: %s\n", synopsis(c))
	}
	fmt.Fprintf(p.Stderr, "run %q for details\n", path+" --help")
}

// run runs the command line.
func (p *Program) run(ctx context.Context, args []string) error {
	p.prepare()
	if len(args) > 1 && args[1] == completeCommand {
		return p.complete(args[2:])
	}
	args, err := p.arrange(args)
	if err != nil {
		return err
	}
	var help bytes.Buffer // what cli prints, also where there is a mistake
	p.App.Writer, p.App.ErrWriter = &help, io.Discard
	if err = p.App.RunContext(ctx, args); err != nil {
		c, path := resolve(p.App, args)
		flags := p.App.Flags
		if c != nil {
			flags = c.Flags // with --help, which cli has added
		}
		return usageOf(err, path, flags)
	}
	if help.Len() > 0 {
		_, err = p.Stdout.Write(help.Bytes())
	}
	return err
}

// prepare replaces what cli would do otherwise than this package promises.
func (p *Program) prepare() {
	a := p.App
	a.HideHelpCommand = true
	a.ExitErrHandler = func(*cli.Context, error) {}
	a.CustomAppHelpTemplate = programHelp
	a.OnUsageError = notParsed
	a.Action = group
	a.Flags = append(a.Flags, cli.HelpFlag)
	a.Commands = append(a.Commands, completionCommand(a.Name), p.manCommand(), helpCommand())
	cli.FlagStringer = describe
	cli.VersionPrinter = func(c *cli.Context) { fmt.Fprintf(c.App.Writer, "%s %s\n", c.App.Name, c.App.Version) }
	a.Setup() // first: it changes the commands' HelpName
	prepareCommands(a.Name, a.Commands)
}

func prepareCommands(path string, commands []*cli.Command) {
	for _, c := range commands {
		c.HelpName = path + " " + c.Name
		c.HideHelpCommand = true
		c.CustomHelpTemplate = commandHelp
		c.OnUsageError = notParsed
		c.UsageText = synopsis(c)
		if isGroup(c) {
			c.Action = group
		}
		prepareCommands(c.HelpName, c.Subcommands)
	}
}

// isGroup reports whether a command does nothing but have commands of its own. One
// with arguments does something where its first argument is none of them.
func isGroup(c *cli.Command) bool { return len(c.Subcommands) > 0 && c.ArgsUsage == "" }

// parseError is what package flag says of a command line.
type parseError struct{ error }

func notParsed(_ *cli.Context, err error, _ bool) error { return parseError{err} }

// usageOf returns err, if it is about the command line, as a *UsageError of the
// command at path, which has some flags.
func usageOf(err error, path string, flags []cli.Flag) error {
	var (
		usage  *UsageError
		parse  parseError
		absent = required.FindStringSubmatch(err.Error())
	)
	switch {
	case errors.As(err, &usage):
		usage.Command = path
		return err
	case errors.As(err, &parse):
		return &UsageError{Err: flagError(parse.error, flags), Command: path}
	case absent != nil:
		names := strings.Split(absent[1], ", ")
		for i, n := range names {
			names[i] = dashed(n)
		}
		return &UsageError{Err: fmt.Errorf("missing %s", strings.Join(names, " and ")), Command: path}
	}
	return err
}

// group is the action of a command that has commands of its own: it prints its
// help, or says that there is no such command.
func group(c *cli.Context) error {
	if c.Args().Present() {
		return Usage(unknownCommand(c.Args().First(), c.Command.Subcommands))
	}
	if c.Command.Name == c.App.Name {
		return cli.ShowAppHelp(c)
	}
	return cli.ShowSubcommandHelp(c)
}

func unknownCommand(name string, commands []*cli.Command) error {
	var names []string
	for _, c := range commands {
		if !c.Hidden {
			names = append(names, c.Names()...)
		}
	}
	return fmt.Errorf("unknown command %q%s", name, didYouMean(name, "", names))
}

// NoArguments refuses arguments, which cli would ignore. It is for a command's
// Before.
func NoArguments(c *cli.Context) error {
	if c.Args().Present() {
		return Usagef("unexpected argument %q", c.Args().First())
	}
	return nil
}

// What package flag and cli say of a command line.
var (
	unknownFlag  = regexp.MustCompile(`^flag provided but not defined: -+(.*)$`)
	missingValue = regexp.MustCompile(`^flag needs an argument: -+(.*)$`)
	invalidValue = regexp.MustCompile(`(?s)^invalid (?:boolean )?value (".*?") for (?:flag )?-+([a-z0-9-]+): (.*)$`)
	required     = regexp.MustCompile(`^Required flags? "(.*)" not set$`)
	twice        = regexp.MustCompile(`^Cannot use two forms of the same flag: (\S+) (\S+)$`)
)

// flagError says in this package's words what cli says of flags.
func flagError(err error, flags []cli.Flag) error {
	text := err.Error()
	if m := unknownFlag.FindStringSubmatch(text); m != nil {
		var names []string
		for _, f := range flags {
			names = append(names, f.Names()[0])
		}
		return fmt.Errorf("unknown flag %s%s", dashed(m[1]), didYouMean(m[1], "--", names))
	}
	if m := missingValue.FindStringSubmatch(text); m != nil {
		return fmt.Errorf("%s needs a value", dashed(m[1]))
	}
	if m := twice.FindStringSubmatch(text); m != nil {
		return fmt.Errorf("%s and %s are the same flag", dashed(m[1]), dashed(m[2]))
	}
	m := invalidValue.FindStringSubmatch(text)
	switch {
	case m == nil:
		return err
	case strings.HasPrefix(m[3], mustBe):
		return fmt.Errorf("%s %s", dashed(m[2]), m[3])
	case m[3] == "parse error" && strings.Contains(text, "invalid boolean value"):
		return fmt.Errorf("invalid %s %s: want true or false", dashed(m[2]), m[1])
	case m[3] == "parse error":
		return fmt.Errorf("invalid %s %s: want a number", dashed(m[2]), m[1])
	}
	return fmt.Errorf("invalid %s %s: %s", dashed(m[2]), m[1], m[3])
}

// dashed is a flag's name as people write it.
func dashed(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

// Exit runs the program with the command line of the process and ends it.
func (p *Program) Exit() { os.Exit(p.Main(context.Background(), os.Args)) }
