package cmdline

import (
	_ "embed"
	"io"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/urfave/cli/v2"

	"github.com/scaffe/scaffe/internal/atomicfile"
)

// manCommand writes the man pages: one of the program and one of each command.
func (p *Program) manCommand() *cli.Command {
	return &cli.Command{
		Name: "man", Usage: "write the man pages", Hidden: true, Before: NoArguments,
		Flags: []cli.Flag{&cli.StringFlag{Name: "out", Usage: "write them to `DIR`", Required: true}},
		Action: func(c *cli.Context) error {
			pages := []page{{Name: p.App.Name, Usage: p.App.Usage, Synopsis: p.App.Name + " COMMAND [flags] [arguments]", Description: p.App.Description, Flags: p.App.Flags, Commands: visible(p.App.Commands)}}
			pages = append(pages, commandPages(p.App.Commands)...)
			for i := range pages {
				pages[i].Version = p.App.Version
				write := func(w io.Writer) error { return manPage.Execute(w, &pages[i]) }
				if err := atomicfile.Stream(atomicfile.OS, filepath.Join(c.String("out"), pages[i].File()+".1"), write); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// page is what stands in a man page.
type page struct {
	Name, Version, Usage, Synopsis, Description string
	Flags                                       []cli.Flag
	Commands                                    []*cli.Command
}

// File is the name of the page: scaffe-trace-svg.
func (p *page) File() string { return strings.ReplaceAll(p.Name, " ", "-") }

func commandPages(commands []*cli.Command) (pages []page) {
	for _, c := range visible(commands) {
		flags := c.VisibleFlags()
		if findFlag(flags, cli.HelpFlag.Names()[0]) == nil { // cli adds it to the command that runs
			flags = append(flags, cli.HelpFlag)
		}
		pages = append(pages, page{Name: c.HelpName, Usage: c.Usage, Synopsis: c.UsageText, Description: c.Description, Flags: flags, Commands: visible(c.Subcommands)})
		pages = append(pages, commandPages(c.Subcommands)...)
	}
	return pages
}

func visible(commands []*cli.Command) (all []*cli.Command) {
	for _, c := range commands {
		if !c.Hidden {
			all = append(all, c)
		}
	}
	return all
}

//go:embed man.roff
var manText string

var manPage = template.Must(template.New("man").Funcs(template.FuncMap{
	"roff": roff, "upper": strings.ToUpper,
	"flag":  func(f cli.Flag) string { name, _, _ := strings.Cut(describe(f), "\t"); return name },
	"about": func(f cli.Flag) string { _, usage, _ := strings.Cut(describe(f), "\t"); return usage },
	"file":  func(name string) string { return strings.ReplaceAll(name, " ", "-") },
}).Parse(manText))

// roff returns text that troff prints as it is: backslashes and hyphens are
// escaped, and indented lines, the examples, stay lines.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`).Replace(text)
	var b strings.Builder
	example := false
	for line := range strings.Lines(text) {
		if indented := strings.HasPrefix(line, "  "); indented != example {
			b.WriteString(map[bool]string{true: ".nf\n", false: ".fi\n"}[indented])
			example = indented
		}
		switch {
		case strings.TrimSpace(line) == "":
			line = ".PP\n"
		case strings.HasPrefix(line, "."):
			line = `\&` + line
		}
		b.WriteString(line)
	}
	if example {
		b.WriteString("\n.fi")
	}
	return b.String()
}
