// Package version says which build of the module is running. The Go toolchain
// stamps the module's version and the revision into a program; a build that
// cannot be stamped so (outside a repository, or with -buildvcs=false) may set
// both with the linker:
//
//	go build -ldflags "-X github.com/scaffe/scaffe/internal/version.number=v1.2.0
//	    -X github.com/scaffe/scaffe/internal/version.revision=8c467e6cc12f" ./cmd/scaffe
//
// Nothing here names a path of the machine that built the program.
package version

import (
	"runtime"
	"runtime/debug"
	"strings"
)

// Set by the linker, or empty.
var (
	number   string // such as v1.2.0: has precedence over the stamped version
	revision string // such as 8c467e6cc12f or 8c467e6cc12f-dirty: where none is stamped
)

// Info describes a build. Its JSON form is an interface.
type Info struct {
	Version  string   `json:"version"`            // such as v1.2.0, or devel
	Revision string   `json:"revision,omitempty"` // 12 digits; empty: unknown
	Time     string   `json:"time,omitempty"`     // of the revision, RFC 3339; empty: unknown
	Modified bool     `json:"modified"`           // the source differed from the revision
	Go       string   `json:"go"`                 // such as go1.26.0
	Platform string   `json:"platform"`           // such as linux/amd64
	Tags     []string `json:"tags"`               // build tags, without nil
}

// Get returns what is known about this program.
func Get() Info {
	b, ok := debug.ReadBuildInfo()
	if !ok {
		b = &debug.BuildInfo{}
	}
	return of(b, number, revision)
}

// String returns the version of this program on one line; see Info.String.
func String() string { return Get().String() }

func of(b *debug.BuildInfo, number, revision string) Info {
	i := Info{Version: number, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, Tags: []string{}}
	if i.Version == "" {
		i.Version = b.Main.Version
	}
	if i.Version == "" || i.Version == "(devel)" {
		i.Version = "devel"
	}
	for _, s := range b.Settings {
		switch s.Key {
		case "vcs.revision":
			i.Revision = s.Value
		case "vcs.time":
			i.Time = s.Value
		case "vcs.modified":
			i.Modified = s.Value == "true"
		case "-tags":
			i.Tags = strings.FieldsFunc(s.Value, func(r rune) bool { return r == ',' || r == ' ' })
		}
	}
	if i.Revision == "" {
		i.Revision, i.Modified = strings.CutSuffix(revision, "-dirty")
	}
	i.Revision = i.Revision[:min(len(i.Revision), 12)]
	return i
}

// String returns the version and, where the version does not contain it, the
// revision: "v1.2.0", "devel (8c467e6cc12f, modified)".
func (i Info) String() string {
	if i.Revision == "" || strings.Contains(i.Version, i.Revision) {
		return i.Version
	}
	text := i.Version + " (" + i.Revision
	if i.Modified {
		text += ", modified"
	}
	return text + ")"
}
