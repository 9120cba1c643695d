package cmdline_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/scaffe/scaffe/internal/cmdline"
	"github.com/scaffe/scaffe/internal/output"
)

var errReported = errors.New("reported elsewhere")

// kitchen returns a small program: "cook DISH" with flags, and "wash" with
// commands of its own.
func kitchen(out, errs *bytes.Buffer) *cmdline.Program {
	stdout := output.New(out, "stdout")
	heat := cmdline.Choice("heat", "low", "`LEVEL` of the heat", "low", "high")
	heat.Aliases = []string{"fire"}
	app := &cli.App{
		Name: "kitchen", Usage: "cook and wash", Version: "v1.2.3",
		Commands: []*cli.Command{{
			Name: "cook", Usage: "cook a dish", ArgsUsage: "soup|stew GUESTS",
			Flags: []cli.Flag{
				heat,
				cmdline.Int("eggs", 2, 1, "`N` eggs"),
				cmdline.Duration("time", 2*time.Minute, "cook for `TIME`"),
				cmdline.Float("salt", 1, true, "`G` grams of salt"),
				cmdline.Checked("size", "", "of the pan", cmdline.Parsed(func(s string) (int, error) { return 0, fmt.Errorf("size %q: no such pan", s) }, "")),
				&cli.BoolFlag{Name: "stir", Usage: "stir"},
				&cli.StringFlag{Name: "recipe", Usage: "from `FILE`", Required: true},
			},
			Action: func(c *cli.Context) error {
				switch c.String("recipe") {
				case "burnt":
					return errors.New("it burns")
				case "told":
					return errReported
				}
				fmt.Fprintf(stdout, "%s: %d eggs, heat %s, %v, %v g, %v", c.Args().First(), c.Int("eggs"), c.String("heat"), c.Duration("time"), c.Float64("salt"), c.Bool("stir"))
				return cmdline.Together(c, "eggs", "salt")
			},
		}, {
			Name: "wash", Usage: "wash up",
			Subcommands: []*cli.Command{
				{Name: "pans", Usage: "wash pans", Before: cmdline.NoArguments, Action: func(*cli.Context) error { return nil }},
				{Name: "plates", Usage: "wash plates", Action: func(*cli.Context) error { return nil }},
			},
		}},
	}
	return &cmdline.Program{App: app, Stdout: stdout, Stderr: errs, Reported: errReported}
}

func run(args string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = kitchen(&out, &errs).Main(context.Background(), append([]string{"/usr/bin/kitchen"}, strings.Fields(args)...))
	return code, out.String(), errs.String()
}

// Flags may follow arguments; -- ends them.
func TestGoodCommandLines(t *testing.T) {
	for args, want := range map[string]string{
		"cook soup --recipe r":                               "soup: 2 eggs, heat low, 2m0s, 1 g, false",
		"cook --recipe r --eggs 3 soup":                      "soup: 3 eggs, heat low, 2m0s, 1 g, false",
		"cook soup --stir --recipe=r --fire high --time 90s": "soup: 2 eggs, heat high, 1m30s, 1 g, true",
		"cook --recipe r --salt 0 -- --eggs":                 "--eggs: 2 eggs, heat low, 2m0s, 0 g, false",
		"cook --stir=true soup --salt 0.5 -recipe=r":         "soup: 2 eggs, heat low, 2m0s, 0.5 g, true",
	} {
		code, stdout, stderr := run(args)
		if code != 0 || stdout != want || stderr != "" {
			t.Errorf("kitchen %s: status %d\n%q, want %q\n%s", args, code, stdout, want, stderr)
		}
	}
}

// What is wrong with a command line is said on stderr alone, with a hint.
func TestUsageErrors(t *testing.T) {
	for args, want := range map[string]string{
		"cok":                                    `unknown command "cok"; did you mean "cook"?`,
		"dance":                                  `unknown command "dance"`,
		"wash pams":                              `unknown command "pams"; did you mean "pans"?`,
		"help cok":                               `unknown command "cok"; did you mean "cook"?`,
		"help wash pams":                         `unknown command "pams"; did you mean "pans"?`,
		"--hlep":                                 "unknown flag --hlep; did you mean --help?",
		"cook --recipe r --egs 3":                "unknown flag --egs; did you mean --eggs?",
		"cook --recipe r --nothing":              "unknown flag --nothing",
		"cook --recipe":                          "--recipe needs a value",
		"cook soup":                              "missing --recipe",
		"cook --recipe r --heat mild":            `invalid --heat "mild": want low or high`,
		"cook --recipe r --fire mild":            `invalid --fire "mild": want low or high`,
		"cook --recipe r --eggs 0":               "--eggs must be at least 1 (got 0)",
		"cook --recipe r --eggs two":             `invalid --eggs "two": want a whole number`,
		"cook --recipe r --eggs 1" + zeros:       "the number is too large",
		"cook --recipe r --time 0s":              "--time must be positive (got 0s)",
		"cook --recipe r --time 3":               `invalid --time "3": want a time such as 30s or 2m`,
		"cook --recipe r --salt -1":              "--salt must be at least 0 (got -1)",
		"cook --recipe r --salt NaN":             `invalid --salt "NaN": want a number`,
		"cook --recipe r --size huge":            `invalid --size "huge": no such pan`,
		"cook --recipe r --stir=maybe":           `invalid --stir "maybe": want true or false`,
		"cook --recipe r --heat low --fire":      "--fire needs a value",
		"cook --recipe r --heat low --fire high": "are the same flag",
		"wash pans now":                          `unexpected argument "now"`,
		"cook --recipe r --eggs 3 --salt 2":      "--eggs and --salt cannot be used together",
	} {
		code, stdout, stderr := run(args)
		if !strings.HasPrefix(stderr, "kitchen: ") || !strings.Contains(stderr, want) || code != 2 {
			t.Errorf("kitchen %s: status %d and %q, want 2 and %q", args, code, stderr, want)
		}
		if !strings.Contains(stderr, `--help" for details`) || stdout != "" && !strings.Contains(want, "together") {
			t.Errorf("kitchen %s: no hint, or %q on stdout\n%s", args, stdout, stderr)
		}
	}
}

const zeros = "00000000000000000000"

func TestOtherErrors(t *testing.T) {
	if code, _, stderr := run("cook --recipe burnt"); code != 1 || stderr != "kitchen: it burns\n" {
		t.Errorf("status %d, %q", code, stderr)
	}
	if code, _, stderr := run("cook --recipe told"); code != 1 || stderr != "" {
		t.Errorf("an error that was reported: status %d, %q", code, stderr)
	}
}

// Results that cannot be written are an error, though the command saw none.
func TestLostResults(t *testing.T) {
	for _, args := range []string{"cook --recipe r", "help", "help cook", "--version", "completion bash", "__complete c"} {
		var errs bytes.Buffer
		p := kitchen(&bytes.Buffer{}, &errs)
		full := output.New(fullDisk{}, "stdout")
		for _, c := range p.App.Commands {
			if c.Name == "cook" {
				c.Action = func(*cli.Context) error { fmt.Fprint(full, "soup"); return nil }
			}
		}
		p.Stdout = full
		code := p.Main(context.Background(), append([]string{"kitchen"}, strings.Fields(args)...))
		if code != 1 || errs.String() != "kitchen: cannot write to stdout: no space left on device\n" {
			t.Errorf("%s: status %d, %q", args, code, &errs)
		}
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// "help COMMAND" is "COMMAND --help", and a group without a command its help.
func TestHelp(t *testing.T) {
	for _, c := range []struct{ a, b, want string }{
		{"help cook", "cook --help", "kitchen cook --recipe FILE soup|stew GUESTS [flags]"},
		{"help cook", "cook soup --eggs 3 -h", "kitchen cook --recipe FILE soup|stew GUESTS [flags]"},
		{"help wash pans", "wash pans -h", "kitchen wash pans [flags]"},
		{"help wash", "wash", "pans    wash pans"},
		{"help", "", "cook        cook a dish"},
	} {
		code, a, stderr := run(c.a)
		codeB, b, stderrB := run(c.b)
		if a != b || code+codeB != 0 || stderr+stderrB != "" || !strings.Contains(a, c.want) {
			t.Errorf("%q: status %d\n%s%s\n%q: status %d\n%s%s", c.a, code, a, stderr, c.b, codeB, b, stderrB)
		}
	}
	_, help, _ := run("help cook")
	for _, want := range []string{
		"\n  --heat LEVEL   LEVEL of the heat (default: low)\n", "\n  --time TIME    cook for TIME (default: 2m)\n", "\n  --stir         stir\n",
	} {
		if !strings.Contains(help, want) {
			t.Errorf("%q is not in\n%s", want, help)
		}
	}
}

func TestVersion(t *testing.T) {
	if code, stdout, _ := run("--version"); code != 0 || stdout != "kitchen v1.2.3\n" {
		t.Errorf("status %d, %q", code, stdout)
	}
}

// complete returns the candidates for a command line, whose last word may be
// empty.
func complete(line string) []string {
	var out, errs bytes.Buffer
	kitchen(&out, &errs).Main(context.Background(), append([]string{"kitchen", "__complete"}, strings.Split(line, " ")...))
	var words []string
	for l := range strings.Lines(out.String()) {
		word, _, _ := strings.Cut(strings.TrimSpace(l), "\t")
		words = append(words, word)
	}
	return words
}

func TestComplete(t *testing.T) {
	for _, c := range []struct {
		line string
		want []string
	}{
		{"", []string{"cook", "wash", "completion", "help"}},
		{"co", []string{"cook", "completion"}},
		{"wash ", []string{"pans", "plates"}},
		{"help wash pl", []string{"plates"}},
		{"cook --s", []string{"--salt", "--size", "--stir"}},
		{"cook soup --he", []string{"--heat", "--help"}},
		{"cook --heat ", []string{"low", "high"}},
		{"cook --heat h", []string{"high"}},
		{"cook --heat=l", []string{"--heat=low"}},
		{"cook --fire ", []string{"low", "high"}},
		{"cook --recipe ", nil}, // a file
		{"cook --stir ", []string{"soup", "stew"}},
		{"cook ", []string{"soup", "stew"}},
		{"cook --eggs 3 st", []string{"stew"}},
		{"cook soup ", nil},
		{"cook -- --s", nil},
		{"completion ", []string{"bash", "zsh", "fish"}},
	} {
		if got := complete(c.line); !slices.Equal(got, c.want) {
			t.Errorf("%q: %q, want %q", c.line, got, c.want)
		}
	}
}

// The script that bash loads calls the program with the words up to the
// cursor. The program is a stand-in that says what it was called with.
func TestBashCompletion(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("there is no bash")
	}
	_, script, _ := run("completion bash")
	dir := t.TempDir()
	for name, text := range map[string]string{
		"complete.bash": script,
		"kitchen":       "#!/bin/sh\ncase \"$*\" in\n'__complete cook --he') printf '%s\\tabout\\n' --heat --help ;;\n'__complete cook --heat=') printf '%s\\t\\n' --heat=low --heat=high ;;\n'__complete cook ') echo 'soup\tabout' ;;\nesac\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for line, want := range map[string]string{
		"cook --he": "--heat --help", "cook --heat=": "low high", "cook ": "soup",
	} {
		ask := fmt.Sprintf(`. ./complete.bash; COMP_LINE='./kitchen %s'; COMP_POINT=${#COMP_LINE}; _kitchen_complete; echo "${COMPREPLY[*]}"`, line)
		cmd := exec.Command(bash, "--norc", "-c", ask)
		cmd.Dir = dir
		got, err := cmd.CombinedOutput()
		if err != nil || strings.TrimSpace(string(got)) != want {
			t.Errorf("%q: %v, %q, want %q", line, err, got, want)
		}
	}
}

// There is a page for the program and for each command, and groff, where it is
// installed, finds nothing wrong with them.
func TestMan(t *testing.T) {
	dir := t.TempDir()
	if code, _, stderr := run("man --out " + dir); code != 0 || stderr != "" {
		t.Fatalf("status %d, %s", code, stderr)
	}
	for name, want := range map[string]string{
		"kitchen":            ".BR kitchen\\-cook (1)\ncook a dish\n",
		"kitchen-cook":       ".B \\-\\-eggs N\nN eggs (default: 2)\n",
		"kitchen-wash":       ".BR kitchen\\-wash\\-plates (1)\n",
		"kitchen-wash-pans":  ".B kitchen wash pans [flags]\n",
		"kitchen-completion": ".TH \"KITCHEN\\-COMPLETION\" \"1\" \"\" \"v1.2.3\"\n",
	} {
		page, err := os.ReadFile(filepath.Join(dir, name+".1"))
		if err != nil || !strings.Contains(string(page), want) {
			t.Errorf("%s: %v\n%s\nwithout %q", name, err, page, want)
		}
		if _, err := exec.LookPath("groff"); err == nil {
			if out, err := exec.Command("groff", "-man", "-Tascii", "-ww", "-z", filepath.Join(dir, name+".1")).CombinedOutput(); err != nil || len(out) > 0 {
				t.Errorf("%s: %v\n%s", name, err, out)
			}
		}
	}
}
