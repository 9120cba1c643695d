package main

import (
	"bytes"
	"errors"
	"go/build"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/scaffe/scaffe/caffe/proto"
)

// Every picture in docs/img that the tool makes is what it makes, by the
// command that docs/algorithms.md gives.
func TestDocsPictures(t *testing.T) {
	text, err := os.ReadFile("../../docs/algorithms.md")
	if err != nil {
		t.Fatal(err)
	}
	commands := regexp.MustCompile(`(?m)^ +scaffe schedule --svg docs/img/(\S+) (.+)$`).FindAllStringSubmatch(string(text), -1)
	if len(commands) < 6 {
		t.Fatalf("%d commands found: have they another form than this test reads?", len(commands))
	}
	dir := t.TempDir()
	for _, c := range commands {
		file := filepath.Join(dir, c[1])
		r := command(t, dir, scaffe, append([]string{"schedule", "--svg", file}, strings.Fields(c[2])...)...)
		if r.code != 0 {
			t.Errorf("%s: %s", c[0], r.stderr)
			continue
		}
		got, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(filepath.Join("../../docs/img", c[1]))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("docs/img/%s is not what %s draws: run it again, and look", c[1], strings.TrimSpace(c[0]))
		}
	}
}

// Packages import what the table in docs/architecture.md allows: those of
// rows above their own.
func TestDocsArchitectureTable(t *testing.T) {
	const root, module = "../..", "github.com/scaffe/scaffe/"
	row := map[string]int{}
	for i, line := range table(t, "architecture.md") {
		if names := regexp.MustCompile("`([a-z0-9/_-]+)`").FindAllStringSubmatch(line[0], -1); len(line) == 3 && row["cmd/scaffe"] == 0 {
			for _, n := range names {
				if row[n[1]] > 0 {
					t.Errorf("package %s stands in the table twice", n[1])
				}
				row[n[1]] = i + 1
			}
		}
	}
	seen := 0
	err := filepath.WalkDir(root, func(dir string, d os.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if name := d.Name(); name != ".." && (strings.HasPrefix(name, ".") || name == "testdata" || name == "build") {
			return filepath.SkipDir
		}
		context := build.Default
		context.BuildTags, context.CgoEnabled = []string{"mpi", "cuda"}, true
		p, err := context.ImportDir(dir, 0)
		if none := (*build.NoGoError)(nil); errors.As(err, &none) {
			return nil
		} else if err != nil {
			return err
		}
		seen++
		name, _ := filepath.Rel(root, dir)
		if row[name] == 0 {
			t.Errorf("package %s is not in the table", name)
		}
		for _, i := range p.Imports {
			if other, ours := strings.CutPrefix(i, module); ours && row[other] >= row[name] {
				t.Errorf("package %s imports %s, which does not stand above it", name, other)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen != len(row) {
		t.Errorf("%d packages in the table, %d in the tree", len(row), seen)
	}
}

// The packages of which docs/architecture.md says that they are pure import,
// themselves or through others, no engine, no kernels and no cgo. Nor do they import
// anything with which they could race where scripts/test-pure leaves them out of the race detector's tests.
func TestDocsArchitecturePure(t *testing.T) {
	const root, module = "../..", "github.com/scaffe/scaffe/"
	text, err := os.ReadFile(root + "/docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(text), "Data and pure functions are ")
	list, _, found := strings.Cut(list, ".")
	names := regexp.MustCompile("`([a-z0-9/]+)`").FindAllStringSubmatch(list, -1)
	if !found || len(names) < 13 {
		t.Fatalf("%d pure packages found: has the sentence another form than this test reads?", len(names))
	}
	script, err := os.ReadFile(root + "/scripts/test-pure")
	if err != nil {
		t.Fatal(err)
	}
	raceless := regexp.MustCompile(`(?m)^functions='/scaffe/(.*)'$`).FindStringSubmatch(string(script))
	if raceless == nil {
		t.Fatal("scripts/test-pure does not say which packages it tests without the race detector")
	}
	untested := regexp.MustCompile("^" + raceless[1])
	context := build.Default
	context.BuildTags, context.CgoEnabled = []string{"mpi", "cuda"}, true
	forbidden := regexp.MustCompile(`^(C|(nbc|kernels|mpi)(/.*)?)$`)
	threads := regexp.MustCompile(`^(sync(/.*)?|context|unsafe)$`)
	var visit func(name string, way []string, seen map[string]bool)
	visit = func(name string, way []string, seen map[string]bool) {
		if seen[name] {
			return
		}
		seen[name] = true
		p, err := context.ImportDir(filepath.Join(root, name), 0)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
		way = append(way[:len(way):len(way)], name)
		for _, i := range p.Imports {
			other, ours := strings.CutPrefix(i, module)
			if forbidden.MatchString(other) || len(way) == 1 && untested.MatchString(name) && threads.MatchString(other) {
				t.Errorf("%s imports %s", strings.Join(way, ", which imports "), other)
			} else if ours {
				visit(other, way, seen)
			}
		}
	}
	for _, n := range names {
		visit(n[1], nil, map[string]bool{})
	}
}

// Every row of a table stands below its head, since an empty line in between ends
// the table and what follows is shown as plain text; and it has as many cells.
func TestDocsTables(t *testing.T) {
	rule := regexp.MustCompile(`^\|[-:| ]*-[-:| ]*\|$`)
	cells := func(line string) int { return strings.Count(strings.ReplaceAll(line, `\|`, ""), "|") - 1 }
	for page, text := range pages(t) {
		lines := strings.Split(text, "\n")
		columns := 0
		for i, line := range lines {
			if !strings.HasPrefix(line, "|") {
				columns = 0
				continue
			}
			if columns == 0 {
				columns = cells(line)
				if i+1 == len(lines) || !rule.MatchString(strings.TrimSpace(lines[i+1])) {
					t.Errorf("%s:%d: a row of a table without its head: %s", page, i+1, line)
				}
			}
			if cells(line) != columns {
				t.Errorf("%s:%d: %d cells in a table of %d columns: %s", page, i+1, cells(line), columns, line)
			}
		}
	}
}

// table returns the cells of all table rows of a page.
func table(t *testing.T, page string) [][]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../docs", page))
	if err != nil {
		t.Fatal(err)
	}
	var rows [][]string
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "|") {
			cells := strings.Split(strings.Trim(line, "|"), "|")
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			rows = append(rows, cells)
		}
	}
	return rows
}

// docs/training.md lists what package caffe/proto supports: every field of a
// solver, every layer, and every field that is not simply honored.
func TestDocsTrainingLists(t *testing.T) {
	text, err := os.ReadFile("../../docs/training.md")
	if err != nil {
		t.Fatal(err)
	}
	says := func(name string) {
		if !strings.Contains(string(text), "`"+name+"`") {
			t.Errorf("docs/training.md does not mention `%s`", name)
		}
	}
	for _, l := range proto.LayerTypes() {
		says(l)
	}
	fields := (&proto.SolverParameter{}).ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		says(string(fields.Get(i).Name()))
	}
	var want, got [][]string
	for _, r := range proto.Support() {
		want = append(want, []string{"`" + strings.TrimPrefix(r.Field, "caffe.") + "`", string(r.Effect), r.Why})
	}
	for _, row := range table(t, "training.md") {
		if len(row) == 3 && strings.Contains(row[0], ".") {
			got = append(got, row)
		}
	}
	for i := range max(len(want), len(got)) {
		if i >= len(want) || i >= len(got) || !slices.Equal(want[i], got[i]) {
			t.Fatalf("row %d of the table of fields: %q, want %q", i, got[min(i, len(got)):min(i+1, len(got))], want[min(i, len(want)):min(i+1, len(want))])
		}
	}
}
