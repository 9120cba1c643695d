package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Links from page to page lead somewhere, to the heading too.
func TestDocsLinks(t *testing.T) {
	texts := pages(t)
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	for page, text := range texts {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			to, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(to, "://") || strings.HasPrefix(to, "mailto:") {
				continue
			}
			target := filepath.Join(filepath.Dir(page), to)
			if to == "" {
				target = page
			}
			if _, err := os.Stat(filepath.Join("../..", target)); err != nil {
				t.Errorf("%s: %s leads nowhere", page, m[1])
				continue
			}
			if anchor != "" && !slices.Contains(headings(texts[target]), anchor) {
				t.Errorf("%s: %s has no heading #%s", page, target, anchor)
			}
		}
	}
}

// headings returns the anchors of a page's headings, as hosts make them.
func headings(text string) []string {
	var as []string
	for _, m := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(text, -1) {
		a := regexp.MustCompile(`[^\p{L}\p{N}\s_-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		as = append(as, strings.ReplaceAll(a, " ", "-"))
	}
	return as
}

// docs/environment.md names every environment variable that the program,
// the scripts and the tests read, and no other. SCAFFE_TEST_… that it does not name are between a test and the
// processes that it starts.
func TestDocsEnvironment(t *testing.T) {
	text := pages(t)[filepath.Join("docs", "environment.md")]
	inGo := regexp.MustCompile(`"(SCAFFE_[A-Z_]+)[="]`)
	inScripts := regexp.MustCompile(`\$\{?(SCAFFE_[A-Z_]+)`)
	found := map[string]bool{}
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := d.Name(); d.IsDir() && (name == "build" || name == "testdata" || strings.HasPrefix(name, ".") && name != "..") {
			return filepath.SkipDir
		}
		form := inScripts
		switch {
		case strings.HasSuffix(path, ".go"):
			form = inGo
		case !strings.Contains(path, "/scripts/") && !strings.Contains(path, "/hostfiles/") && d.Name() != "Makefile":
			return nil
		}
		if d.IsDir() {
			return nil
		}
		file, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range form.FindAllStringSubmatch(string(file), -1) {
			if found[m[1]] = true; !strings.HasPrefix(m[1], "SCAFFE_TEST_") && !strings.Contains(text, "`"+m[1]+"`") {
				t.Errorf("%s reads %s, which docs/environment.md does not name", path, m[1])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("`(SCAFFE_[A-Z_]+)`").FindAllStringSubmatch(text, -1) {
		if !found[m[1]] {
			t.Errorf("docs/environment.md names %s, which nothing reads", m[1])
		}
	}
}

// The Go of README.md stands in an example that is compiled and run.
func TestDocsReadmeProgram(t *testing.T) {
	example, err := os.ReadFile("../../launch/readme_test.go")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(pages(t)["README.md"], -1)
	if len(blocks) == 0 {
		t.Fatal("README.md shows no Go")
	}
	options := regexp.MustCompile(`launch\.Options\{[^}]*\}`)
	in := options.ReplaceAllString(string(example), "launch.Options{}")
	for line := range strings.Lines(blocks[0][1]) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "//") {
			continue
		}
		line = strings.TrimPrefix(line, "return ") // the example also prints
		if !strings.Contains(in, line) {
			t.Errorf("README.md's %q is not in launch/readme_test.go", line)
		}
	}
}

// docs/glossary.md says each word once.
func TestDocsGlossary(t *testing.T) {
	seen := map[string]bool{}
	for _, row := range table(t, "glossary.md") {
		if len(row) != 2 || row[0] == "word" || strings.HasPrefix(row[0], "-") {
			continue
		}
		for word := range strings.SplitSeq(row[0], ", ") {
			if seen[word] {
				t.Errorf("%q stands in the glossary twice", word)
			}
			seen[word] = true
		}
	}
	if len(seen) < 60 {
		t.Errorf("%d words in the glossary", len(seen))
	}
}
