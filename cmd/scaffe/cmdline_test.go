package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/urfave/cli/v2"

	"github.com/scaffe/scaffe/internal/cmdline"
	"github.com/scaffe/scaffe/internal/output"
)

// inProcess runs a command line without a process of its own. It is for help
// and for mistakes: what commands print goes to the process's own stdout.
func inProcess(args string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	p := cmdline.Program{App: newApp(), Stdout: output.New(&out, "stdout"), Stderr: &errs}
	code = p.Main(context.Background(), append([]string{"scaffe"}, strings.Fields(args)...))
	return code, out.String(), errs.String()
}

// testdata/help.txt holds the help text of every command, testdata/mistakes.txt
// what is said of bad command lines; -rewrite writes them again.
func TestGoldenCommandLine(t *testing.T) {
	lines := []string{"help"}
	var walk func(path string, commands []*cli.Command)
	walk = func(path string, commands []*cli.Command) {
		for _, c := range commands {
			lines = append(lines, path+" "+c.Name)
			walk(path+" "+c.Name, c.Subcommands)
		}
	}
	walk("help", newApp().Commands)
	printed(t, "testdata/help.txt", 0, lines)

	text, err := os.ReadFile("testdata/mistakes.txt")
	if err != nil {
		t.Fatal(err)
	}
	lines = nil
	for line := range strings.Lines(string(text)) {
		if args, found := strings.CutPrefix(line, "$ scaffe "); found {
			lines = append(lines, strings.TrimSpace(args))
		}
	}
	printed(t, "testdata/mistakes.txt", 2, lines)
}

// printed compares a file with what command lines print. Each must end with a
// status, and print to stdout where that is 0, to stderr otherwise.
func printed(t *testing.T, file string, want int, lines []string) {
	t.Helper()
	var b strings.Builder
	for _, args := range lines {
		code, stdout, stderr := inProcess(args)
		if code != want || (stdout != "") != (want == 0) || (stderr != "") != (want != 0) {
			t.Errorf("scaffe %s: status %d, %d bytes on stdout, %d on stderr", args, code, len(stdout), len(stderr))
		}
		fmt.Fprintf(&b, "$ scaffe %s\n%s%s\n", args, stdout, stderr)
	}
	if *rewrite {
		write(t, ".", file, b.String())
		return
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(text), b.String()); diff != "" {
		t.Errorf("%s is not what the program prints (-want +got; -rewrite writes it again):\n%s", file, diff)
	}
}

// The examples in help texts are command lines that are understood.
func TestExamplesParse(t *testing.T) {
	n := 0
	var walk func(commands []*cli.Command)
	walk = func(commands []*cli.Command) {
		for _, c := range commands {
			_, examples, _ := strings.Cut(c.Description, "Examples:\n")
			for line := range strings.Lines(examples) {
				n++
				if _, args, found := strings.Cut(strings.TrimSpace(line), "scaffe "); !found {
					t.Errorf("%s: example %q", c.Name, line)
				} else if stderr := parses(args); stderr != "" {
					t.Errorf("scaffe %s: %s", args, stderr)
				}
			}
			walk(c.Subcommands)
		}
	}
	walk(newApp().Commands)
	if n < 20 {
		t.Errorf("only %d examples", n)
	}
}

// The command lines in the documentation are understood, too.
func TestDocsCommandLines(t *testing.T) {
	shown := regexp.MustCompile(`(?m)^ {4,}(?:\$ )?(?:[A-Z_]+=\S+ )*(?:mpirun .* )?(?:bin/)?scaffe ([a-z].*)$`)
	end := regexp.MustCompile(` 2?>| [#|;&]|\\$`) // of the command: a comment, or more for the shell
	n := 0
	for page, text := range pages(t) {
		for _, m := range shown.FindAllStringSubmatch(text, -1) {
			n++
			args := end.Split(m[1], 2)[0]
			if stderr := parses(args); stderr != "" {
				t.Errorf("%s: scaffe %s: %s", page, args, stderr)
			}
		}
	}
	if n < 40 {
		t.Errorf("only %d command lines found", n)
	}
}

// parses reads a command line, and runs nothing. It returns what is wrong.
func parses(args string) string {
	var errs bytes.Buffer
	p := cmdline.Program{App: newApp(), Stdout: output.New(&bytes.Buffer{}, "stdout"), Stderr: &errs}
	var idle func(commands []*cli.Command)
	idle = func(commands []*cli.Command) {
		for _, c := range commands {
			c.Action = func(*cli.Context) error { return nil }
			idle(c.Subcommands)
		}
	}
	idle(p.App.Commands)
	p.Main(context.Background(), append([]string{"scaffe"}, strings.Fields(args)...))
	return errs.String()
}

func TestVersion(t *testing.T) {
	r := command(t, "", scaffe, "--version")
	if r.code != 0 || !strings.HasPrefix(r.stdout, "scaffe ") || strings.Count(r.stdout, "\n") != 1 {
		t.Errorf("--version: status %d, %q", r.code, r.stdout)
	}
	if again := command(t, "", scaffe, "version"); again.stdout != r.stdout {
		t.Errorf("version says %q, --version %q", again.stdout, r.stdout)
	}
	verbose := command(t, "", scaffe, "version", "--verbose").stdout
	for _, want := range []string{"MPI:", "build tags:", "Go:         go1."} {
		if !strings.Contains(verbose, want) {
			t.Errorf("%q is not in\n%s", want, verbose)
		}
	}
	var v map[string]any
	if err := json.Unmarshal([]byte(command(t, "", scaffe, "version", "--format", "json").stdout), &v); err != nil || v["version"] == "" || v["mpi"] == "" {
		t.Errorf("%v: %v", err, v)
	}
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	if root := filepath.Dir(filepath.Dir(dir)); strings.Contains(verbose, root) {
		t.Errorf("%s is in\n%s", root, verbose)
	}
}

// Results that are lost are an error of every command that prints some.
func TestStdoutFull(t *testing.T) {
	long(t)
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip(err)
	}
	dir := workplace(t, 2)
	file := traced(t)
	for _, args := range []string{
		"train --solver solver.prototxt", "train --solver solver.prototxt --log-json -", "train --solver solver.prototxt --local 2 --report table2 --report-iterations 1 --designs SC-B --algorithms chain",
		"data mean --in train_lmdb", "time --model net.prototxt --shape 1x28x28 --iterations 1",
		"replay --list", "replay --profile alexnet-k80 --show", "replay --profile alexnet-k80 --size-scale 0.001 --local 2 --iterations 1",
		"models", "trace report " + file, "schedule reduce chain", "schedule reduce chain --svg -", "explain reduce 1M --nodes 2",
		"tune --local 2 --sizes 4K:4K --iterations 3 --collectives bcast", "doctor", "version", "version --format json", "completion zsh", "help", "--version",
	} {
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		var stderr bytes.Buffer
		cmd := exec.Command(scaffe, strings.Fields(args)...)
		cmd.Dir, cmd.Stdout, cmd.Stderr = dir, full, &stderr
		err = cmd.Run()
		full.Close()
		if code := cmd.ProcessState.ExitCode(); code != 1 || strings.Count(stderr.String(), "no space left on device") == 0 {
			t.Errorf("scaffe %s: %v\n%s", args, err, &stderr)
		}
	}
}

// A closed stdout is one to which nothing can be written, as far as the program
// can tell.
func TestStdoutClosed(t *testing.T) {
	mpirun(t) // built with MPI
	for args, want := range map[string]string{
		"version":                        "scaffe: cannot write to stdout: it is closed\n",
		"schedule reduce chain --svg -":  "scaffe: cannot write to stdout: it is closed\n",
		"schedule reduce chain --root 9": "scaffe: --root must be less than --ranks (got 9 of 4)\n",
	} {
		r := command(t, "", "sh", append([]string{"-c", `exec "$@" >&-`, "sh", scaffe}, strings.Fields(args)...)...)
		if r.code == 0 || !strings.HasPrefix(r.stderr, want) {
			t.Errorf("scaffe %s >&-: status %d\n%s", args, r.code, r.stderr)
		}
	}
	// What prints nothing does not miss it.
	dir := t.TempDir()
	if r := command(t, dir, "sh", "-c", `exec "$@" >&-`, "sh", scaffe, "data", "glyphs", "--out", dir, "--train", "10", "--test", "10"); r.code != 0 {
		t.Errorf("data glyphs >&-: status %d\n%s", r.code, r.stderr)
	}
}

// Files that cannot be written are found before the run, not after it.
func TestOutputsAreCheckedFirst(t *testing.T) {
	dir := workplace(t, 1000000)
	for _, args := range []string{
		"train --solver solver.prototxt --trace none/t.json", "train --solver solver.prototxt --trace train_lmdb --local 2",
		"replay --profile vgg19-titanx --local 2 --iterations 1000000 --trace none/t.json",
		"tune --local 2 --budget 1h --out none/table", "time --model net.prototxt --shape 1x28x28 --iterations 1000000000 --out none/p",
		"schedule reduce chain --ranks 8 --svg none/x.svg",
	} {
		r := command(t, dir, scaffe, strings.Fields(args)...)
		if r.code != 1 || !strings.Contains(r.stderr, "cannot write none/") && !strings.Contains(r.stderr, "cannot write train_lmdb: it is a directory") {
			t.Errorf("scaffe %s: status %d\n%s", args, r.code, r.stderr)
		}
	}
	left, err := filepath.Glob(filepath.Join(dir, ".*.tmp"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// Completion knows the commands, their flags, and the flags' values.
func TestCompletion(t *testing.T) {
	for line, want := range map[string]string{
		"tr": "train trace", "train --des": "--design --designs", "train --design SC-OB": "SC-OB-naive SC-OB SC-OBR",
		"trace report --format ": "text csv json", "data g": "glyphs", "explain --buffers ": "registered unregistered cuda",
		"explain ": "reduce bcast allreduce allgather reduce_scatter alltoall gather scatter schemes", "schedule --ranks 8 b": "bcast", "explain reduce ": "",
	} {
		_, stdout, _ := inProcess("__complete " + line)
		if strings.HasSuffix(line, " ") {
			var out bytes.Buffer
			p := cmdline.Program{App: newApp(), Stdout: output.New(&out, "stdout"), Stderr: &out}
			p.Main(context.Background(), append([]string{"scaffe", "__complete"}, strings.Split(line, " ")...))
			stdout = out.String()
		}
		var got []string
		for l := range strings.Lines(stdout) {
			word, _, _ := strings.Cut(strings.TrimSpace(l), "\t")
			got = append(got, word)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}
