package main

import (
	"debug/elf"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// make install puts programs, man pages and completions below DESTDIR and
// PREFIX; make uninstall removes just those.
func TestMakeInstall(t *testing.T) {
	if _, err := exec.LookPath("make"); err != nil {
		t.Skip(err)
	}
	bin, dest := t.TempDir(), t.TempDir()
	program, err := os.ReadFile(scaffe)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"scaffe": string(program), "osu_reduce": "#!/bin/sh\n", "osu_bw": "#!/bin/sh\n"} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	other := filepath.Join(dest, "opt/share/man/man1/other.1")
	run := func(target string) {
		t.Helper()
		r := command(t, "../..", "make", target, "BIN="+bin, "DESTDIR="+dest, "PREFIX=/opt")
		if r.code != 0 {
			t.Fatalf("make %s: status %d\n%s%s", target, r.code, r.stdout, r.stderr)
		}
	}
	run("install")
	for name, want := range map[string]string{
		"bin/osu_reduce": "#!/bin/sh", "bin/osu_bw": "#!/bin/sh",
		"share/man/man1/scaffe.1": ".TH", "share/man/man1/scaffe-trace-svg.1": "scaffe trace svg",
		"share/bash-completion/completions/scaffe": "complete ", "share/zsh/site-functions/_scaffe": "#compdef scaffe",
		"share/fish/vendor_completions.d/scaffe.fish": "complete -c scaffe",
	} {
		text, err := os.ReadFile(filepath.Join(dest, "opt", name))
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s: %v, %d bytes without %q", name, err, len(text), want)
		}
	}
	if r := command(t, "", filepath.Join(dest, "opt/bin/scaffe"), "--version"); r.code != 0 {
		t.Errorf("the installed program: %s", r.stderr)
	}
	if err := os.WriteFile(other, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	run("uninstall")
	err = filepath.WalkDir(dest, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && path != other {
			t.Errorf("%s is left", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(other); err != nil {
		t.Errorf("a page of another program: %v", err)
	}
}

// The program is linked with no library of CUDA, whatever this machine has, so that it
// starts on machines that have none.
func TestNoCUDALibraryIsNeeded(t *testing.T) {
	f, err := elf.Open(scaffe)
	if err != nil {
		t.Skip(err) // not a program of Linux
	}
	defer f.Close()
	needed, err := f.ImportedLibraries()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range needed {
		if strings.Contains(l, "cuda") || strings.Contains(l, "nvidia") {
			t.Errorf("needs %s; all that it needs: %v", l, needed)
		}
	}
}
