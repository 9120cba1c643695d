package mpi

import (
	"fmt"
	"strings"
)

// Library names an implementation of MPI.
type Library struct {
	Name    string // Open MPI, MPICH, MVAPICH2, MVAPICH, Intel MPI, or the first words of its description
	Version string // such as 4.1.4; may be empty
}

// String returns "Open MPI 4.1.4".
func (l Library) String() string {
	if l.Version == "" {
		return l.Name
	}
	return l.Name + " " + l.Version
}

// Family names the binary interface: programs run with any library of the
// family they were built for. Open MPI is its own; MPICH, MVAPICH and Intel
// MPI share one since 2014 (the MPICH ABI Compatibility Initiative).
func (l Library) Family() string {
	switch l.Name {
	case "Open MPI":
		return "openmpi"
	case "MPICH", "MVAPICH", "MVAPICH2", "Intel MPI":
		return "mpich"
	}
	return strings.ToLower(l.Name)
}

// knownLibraries are the beginnings of what MPI_Get_library_version returns; where
// one is a prefix of another, the longer comes first.
var knownLibraries = []struct{ prefix, name string }{
	{"Open MPI", "Open MPI"},
	{"MVAPICH2", "MVAPICH2"},
	{"MVAPICH", "MVAPICH"},
	{"MPICH", "MPICH"},
	{"Intel(R) MPI Library", "Intel MPI"},
	{"Intel MPI", "Intel MPI"},
}

// ParseLibrary parses what MPI_Get_library_version returns ("Open MPI v4.1.4,
// package: ...", "MPICH Version:\t4.0.2\n...") or what String returned.
func ParseLibrary(s string) Library {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	for _, k := range knownLibraries {
		rest, ok := strings.CutPrefix(line, k.prefix)
		if ok {
			return Library{Name: k.name, Version: firstVersion(rest)}
		}
	}
	words := strings.Fields(line)
	if len(words) > 3 {
		words = words[:3]
	}
	return Library{Name: strings.Join(words, " ")}
}

// firstVersion returns the first word of s that begins with a digit, or with v
// and a digit, up to the first character that cannot be part of a version.
func firstVersion(s string) string {
	for _, w := range strings.Fields(s) {
		w = strings.TrimPrefix(w, "v")
		if w == "" || w[0] < '0' || w[0] > '9' {
			continue
		}
		end := strings.IndexFunc(w, func(r rune) bool {
			return r != '.' && (r < '0' || r > '9') && (r < 'a' || r > 'z')
		})
		if end >= 0 {
			w = w[:end]
		}
		return w
	}
	return ""
}

// checkLibrary compares the library that the dynamic linker found with the one
// whose headers were compiled in, and with the one that was asked for in the
// build (empty if none was). note is a difference that is allowed but worth
// mentioning.
func checkLibrary(asked string, built, found Library) (note string, err error) {
	if asked != "" && asked != built.String() {
		return "", fmt.Errorf("mpi: the build was to use %s but was compiled against %s: "+
			"an old object was taken from Go's build cache; run `go clean -cache` and `make build` again", asked, built)
	}
	if built.Family() != found.Family() {
		return "", fmt.Errorf("mpi: this program was built for %s but the dynamic linker found %s: "+
			"remove the other library from LD_LIBRARY_PATH and LD_PRELOAD, or rebuild with `make MPI=%s build`",
			built, found, found.Family())
	}
	if built != found {
		return fmt.Sprintf("built for %s, running with %s (the same binary interface)", built, found), nil
	}
	return "", nil
}
