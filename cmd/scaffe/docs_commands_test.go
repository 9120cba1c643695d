package main

import (
	"context"
	"image"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/scaffe/scaffe/internal/ranktest"
)

// pages returns README.md and the pages of docs, by path from the root.
func pages(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md"} {
		files, err := filepath.Glob("../../" + pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			texts[strings.TrimPrefix(f, "../../")] = string(text)
		}
	}
	return texts
}

// docCommand is a line of an indented block that runs one of the programs.
var docCommand = regexp.MustCompile(`^ {4,}(?:\$ )?((?:[A-Z_]+=\S+ )?(?:mpirun (?:-{1,2}\S+ \S+ )*|sudo |for .*)?(?:bin/)?(?:scaffe|osu_\w+|make|hostfiles/lab|scripts/\S+|go test)\s.*)$`)

// docCommands returns the commands that a page shows.
func docCommands(text string) []string {
	var commands []string
	for line := range strings.Lines(text) {
		if m := docCommand.FindStringSubmatch(strings.TrimRight(line, "\n")); m != nil {
			c, _, _ := strings.Cut(m[1], "  #")
			commands = append(commands, strings.TrimSpace(c))
		}
	}
	return commands
}

// The documentation's commands are typed as they stand there: what is optional or a
// choice is not written as [this] or <this>, which is a pattern or a file to the shell.
func TestDocsCommandsAreTyped(t *testing.T) {
	quoted := regexp.MustCompile(`'[^']*'|"[^"]*"`)
	for page, text := range pages(t) {
		for _, c := range docCommands(text) {
			if i := strings.IndexAny(quoted.ReplaceAllString(c, "-"), "[]{}<*?"); i >= 0 {
				t.Errorf("%s: %s\nthe shell does not pass this on as it is: quote it, or write it out", page, c)
			}
		}
	}
}

// rule is a line of testdata/docs-commands.txt.
type rule struct {
	skip    bool
	pattern *regexp.Regexp
	text    string // why, or the arguments
	used    bool
}

func docRules(t *testing.T) []*rule {
	t.Helper()
	text, err := os.ReadFile("testdata/docs-commands.txt")
	if err != nil {
		t.Fatal(err)
	}
	var rules []*rule
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		verb, rest, _ := strings.Cut(line, " ")
		pattern, more, ok := strings.Cut(rest, ":")
		if verb != "skip" && verb != "add" || !ok {
			t.Fatalf("testdata/docs-commands.txt: %q is no rule", line)
		}
		rules = append(rules, &rule{skip: verb == "skip", pattern: regexp.MustCompile(pattern), text: strings.TrimSpace(more)})
	}
	return rules
}

// Every command that the documentation shows runs and ends with status 0,
// but for those that testdata/docs-commands.txt names, page by page in one
// folder, so that a command may use what an earlier one has made. Commands that
// need mpirun run where there is an MPI library.
func TestDocsCommands(t *testing.T) {
	long(t)
	rules := docRules(t)
	bin, programs := t.TempDir(), []string{scaffe}
	path := bin
	mpi := os.Getenv("SCAFFE_MPI_DIR")
	if mpi != "" {
		path = bin + ":" + filepath.Join(mpi, "bin")
		osu, err := filepath.Glob(filepath.Join(ranktest.Programs(t), "osu_*"))
		if err != nil {
			t.Fatal(err)
		}
		programs = append(programs, osu...)
	}
	for _, p := range programs {
		if err := os.Symlink(p, filepath.Join(bin, filepath.Base(p))); err != nil {
			t.Fatal(err)
		}
	}
	ran, files := 0, docsFolder(t, bin)
	for page, text := range pages(t) {
		commands := docCommands(text)
		if len(commands) == 0 {
			continue
		}
		t.Run(page, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "files")
			if out, err := exec.Command("cp", "-a", files, dir).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			for _, c := range commands {
				line, why := shortened(rules, c)
				if line = withMPI(line, mpi != ""); why != "" || line == "" {
					continue
				}
				ran++
				begun := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
				cmd := exec.CommandContext(ctx, "bash", "-c", line)
				cmd.Dir, cmd.Env = dir, append(os.Environ(), "PATH="+path+":"+os.Getenv("PATH"))
				out, err := cmd.CombinedOutput()
				cancel()
				t.Logf("%5.1f s  %s", time.Since(begun).Seconds(), line)
				if shown := failsOnPurpose[c]; err != nil && shown == "" {
					t.Errorf("%s\n%v\n%s", line, err, out)
				} else if shown != "" && !strings.Contains(string(out), shown) {
					t.Errorf("%s\nsays %q, not %q as the page does", line, out, shown)
				}
			}
		})
	}
	if ran < 20 {
		t.Errorf("%d commands found: do they have another form than this test reads?", ran)
	}
	for _, r := range rules {
		if !r.used {
			t.Errorf("testdata/docs-commands.txt: no command matches %q any more", r.pattern)
		}
	}
}

// failsOnPurpose are commands that the documentation shows with an error.
var failsOnPurpose = map[string]string{
	"SCAFFE_ALGORITHM=ring scaffe explain reduce 1M --nodes 4": "SCAFFE_ALGORITHM: ",
}

// shortened applies the rules to a command: the line to run, or why it is not.
func shortened(rules []*rule, c string) (line, why string) {
	for _, r := range rules {
		if !r.pattern.MatchString(c) {
			continue
		}
		r.used = true
		if r.skip {
			return "", r.text
		}
		program, pipe, piped := strings.Cut(c, " 2>")
		line = program + " " + r.text
		if piped {
			line += " 2>" + pipe
		}
		return line, ""
	}
	return c, ""
}

// mpirunned is a command that can start its ranks itself instead.
var mpirunned = regexp.MustCompile(`^mpirun -np \d+ (\S*scaffe (?:train|replay) .*)$`)

// someRanks is how many ranks a command asks for.
var someRanks = regexp.MustCompile(`mpirun -np \d+`)

// withMPI returns the line to run, where there is an MPI library with two ranks, since
// the machine may have no more cores; none where it needs a library that is not there.
func withMPI(line string, mpi bool) string {
	if m := mpirunned.FindStringSubmatch(line); m != nil && !mpi {
		return m[1] + " --local 2"
	}
	if strings.Contains(line, "mpirun") && !mpi {
		return ""
	}
	if strings.Contains(line, "-np 1 ") {
		return line
	}
	return someRanks.ReplaceAllString(line, "mpirun -np 2")
}

// docsFolder makes a folder with the files that the documentation's commands
// name.
func docsFolder(t *testing.T, bin string) string {
	t.Helper()
	dir := workplace(t, 4)
	if err := os.Symlink(bin, filepath.Join(dir, "bin")); err != nil {
		t.Fatal(err)
	}
	solver, err := os.ReadFile(filepath.Join(dir, "solver.prototxt"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, "S", string(solver))
	sized := strings.ReplaceAll(testNet, "mean_value: 127", "mean_value: 127 crop_size: 32") // as scaffe time needs it
	write(t, dir, "net.prototxt", sized)
	write(t, dir, "train_val.prototxt", sized)
	if err := os.Symlink("local.table", filepath.Join(dir, "cluster.table")); err != nil { // which an earlier command makes
		t.Fatal(err)
	}
	if r := command(t, dir, scaffe, "train", "--solver", "solver.prototxt"); r.code != 0 {
		t.Fatal(r.stderr)
	}
	for from, names := range map[string][]string{
		"s_iter_4.solverstate": {"net_iter_5000.solverstate", "x_iter_400.solverstate"},
		"s_iter_4.caffemodel":  {"net.caffemodel", "x.caffemodel"},
	} {
		for _, to := range names {
			if err := os.Link(filepath.Join(dir, from), filepath.Join(dir, to)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "images"), 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(dir, "images", "a.png"))
	if err != nil {
		t.Fatal(err)
	}
	if err := png.Encode(f, image.NewRGBA(image.Rect(0, 0, 8, 8))); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "train.txt", "a.png 0\n")
	return dir
}
