package version

import (
	"runtime/debug"
	"slices"
	"testing"
)

func build(version string, settings ...string) *debug.BuildInfo {
	b := &debug.BuildInfo{Main: debug.Module{Version: version}}
	for i := 0; i < len(settings); i += 2 {
		b.Settings = append(b.Settings, debug.BuildSetting{Key: settings[i], Value: settings[i+1]})
	}
	return b
}

func TestString(t *testing.T) {
	const long = "8c467e6cc12f0123456789012345678901234567"
	for _, c := range []struct {
		build            *debug.BuildInfo
		number, revision string
		want             string
	}{
		{build(""), "", "", "devel"},
		{build("(devel)"), "", "", "devel"},
		{build("v1.2.0"), "", "", "v1.2.0"},
		{build("v1.2.0", "vcs.revision", long), "", "", "v1.2.0 (8c467e6cc12f)"},
		{build("(devel)", "vcs.revision", long, "vcs.modified", "true"), "", "", "devel (8c467e6cc12f, modified)"},
		{build("v0.0.0-20261122021055-8c467e6cc12f+dirty", "vcs.revision", long, "vcs.modified", "true"), "", "", "v0.0.0-20261122021055-8c467e6cc12f+dirty"},
		{build("(devel)"), "v2.0.0", "8c467e6cc12f-dirty", "v2.0.0 (8c467e6cc12f, modified)"},
		{build("(devel)", "vcs.revision", long), "", "0123-dirty", "devel (8c467e6cc12f)"},
	} {
		if got := of(c.build, c.number, c.revision).String(); got != c.want {
			t.Errorf("%v with %q, %q: %s, want %s", c.build, c.number, c.revision, got, c.want)
		}
	}
}

func TestTags(t *testing.T) {
	if got := of(build("", "-tags", "mpi,openblas onednn"), "", "").Tags; !slices.Equal(got, []string{"mpi", "openblas", "onednn"}) {
		t.Errorf("tags %q", got)
	}
	if got := Get(); got.Go == "" || got.Platform == "" || got.Tags == nil {
		t.Errorf("%+v", got)
	}
}
