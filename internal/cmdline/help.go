package cmdline

import (
	"strings"

	"github.com/urfave/cli/v2"
)

// The help of a program and of a command, as kubectl has it: what it is for, a
// description with examples, the flags, and how it is called.
const (
	programHelp = `{{.Usage}}
{{if .Description}}
{{.Description}}
{{end}}
Usage:
  {{.HelpName}} COMMAND [flags] [arguments]

Commands:{{range .VisibleCommands}}
  {{.Name}}{{"\t"}}{{.Usage}}{{end}}

Flags:{{range .VisibleFlags}}
  {{.}}{{end}}

"{{.HelpName}} COMMAND --help" tells more about a command.
`
	commandHelp = `{{.Usage}}
{{if .Description}}
{{.Description}}
{{end}}
Usage:
  {{.UsageText}}
{{if .VisibleCommands}}
Commands:{{range .VisibleCommands}}
  {{.Name}}{{"\t"}}{{.Usage}}{{end}}
{{end}}
Flags:{{range .VisibleFlags}}
  {{.}}{{end}}
`
)

// Examples returns the end of a command's Description: command lines, one each.
func Examples(lines ...string) string {
	return "Examples:\n  " + strings.Join(lines, "\n  ")
}

// synopsis is how a command is called: with the flags that it requires, and
// its arguments.
func synopsis(c *cli.Command) string {
	words := []string{c.HelpName}
	if isGroup(c) {
		return c.HelpName + " COMMAND [flags] [arguments]"
	}
	for _, f := range c.Flags {
		if r, ok := f.(cli.RequiredFlag); ok && r.IsRequired() {
			words = append(words, "--"+f.Names()[0], placeholder(f))
		}
	}
	if c.ArgsUsage != "" {
		words = append(words, c.ArgsUsage)
	}
	return strings.Join(append(words, "[flags]"), " ")
}

// describe is a flag's line in a help text. Of its aliases it has those of one
// letter: the others are former names.
func describe(f cli.Flag) string {
	d, ok := f.(cli.DocGenerationFlag)
	if !ok {
		return ""
	}
	names := f.Names()
	text := dashed(names[0])
	for _, n := range names[1:] {
		if len(n) == 1 {
			text = dashed(n) + ", " + text
		}
	}
	if d.TakesValue() {
		text += " " + placeholder(f)
	}
	text += "\t" + strings.ReplaceAll(d.GetUsage(), "`", "")
	if s := d.GetDefaultText(); s != "" && d.TakesValue() {
		text += " (default: " + strings.Trim(s, `"`) + ")"
	}
	return text
}

// placeholder stands for a flag's value: the word between back quotes in its
// usage, or the words that there are.
func placeholder(f cli.Flag) string {
	d, ok := f.(cli.DocGenerationFlag)
	if !ok {
		return "VALUE"
	}
	if _, after, found := strings.Cut(d.GetUsage(), "`"); found {
		word, _, _ := strings.Cut(after, "`")
		return word
	}
	if words := valueWords(f); len(words) > 0 {
		return strings.Join(words, "|")
	}
	return "VALUE"
}

// helpCommand lists the commands; of "help COMMAND", arrange makes "COMMAND
// --help".
func helpCommand() *cli.Command {
	return &cli.Command{
		Name: "help", Usage: "print help for the program or for a command", ArgsUsage: "[COMMAND]...",
		Action: func(c *cli.Context) error { return cli.ShowAppHelp(c) },
	}
}
