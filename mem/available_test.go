package mem

import (
	"strings"
	"testing"
	"testing/fstest"
)

func files(pairs ...string) fstest.MapFS {
	m := fstest.MapFS{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = &fstest.MapFile{Data: []byte(pairs[i+1])}
	}
	return m
}

// TestAvailable: the machine's memory and swap, or what the tightest control
// group leaves; files that a container hides are passed over.
func TestAvailable(t *testing.T) {
	const meminfo = "MemTotal:       16000 kB\nMemFree:         1000 kB\nMemAvailable:    8000 kB\nSwapFree:        2000 kB\n"
	const kB = 1 << 10
	for name, c := range map[string]struct {
		root fstest.MapFS
		want int64
	}{
		"no control groups": {files("proc/meminfo", meminfo), 10000 * kB},
		"no limit": {files("proc/meminfo", meminfo, "proc/self/cgroup", "0::/a\n",
			"sys/fs/cgroup/a/memory.max", "max\n", "sys/fs/cgroup/a/memory.current", "5\n"), 10000 * kB},
		"version 2": {files("proc/meminfo", meminfo, "proc/self/cgroup", "0::/a/b\n",
			"sys/fs/cgroup/a/b/memory.max", "6000000\n", "sys/fs/cgroup/a/b/memory.current", "4000000\n",
			"sys/fs/cgroup/a/b/memory.stat", "anon 3000000\ninactive_file 500000\n"), 2500000},
		"the group above": {files("proc/meminfo", meminfo, "proc/self/cgroup", "0::/a/b\n",
			"sys/fs/cgroup/a/memory.max", "3000000\n", "sys/fs/cgroup/a/memory.current", "1000000\n",
			"sys/fs/cgroup/a/b/memory.max", "6000000\n", "sys/fs/cgroup/a/b/memory.current", "1000000\n"), 2000000},
		"a container that sees its own group as the root": {files("proc/meminfo", meminfo, "proc/self/cgroup", "0::/\n",
			"sys/fs/cgroup/memory.max", "3000000\n", "sys/fs/cgroup/memory.current", "1000000\n"), 2000000},
		"version 1": {files("proc/meminfo", meminfo, "proc/self/cgroup", "12:cpu,cpuacct:/x\n5:memory:/docker/c\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes", "4000000\n", "sys/fs/cgroup/memory/memory.usage_in_bytes", "3500000\n",
			"sys/fs/cgroup/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 100000\n"), 600000},
		"over the limit": {files("proc/meminfo", meminfo, "proc/self/cgroup", "0::/\n",
			"sys/fs/cgroup/memory.max", "3000\n", "sys/fs/cgroup/memory.current", "4000\n"), 0},
	} {
		if got, err := available(c.root); err != nil || got != c.want {
			t.Errorf("%s: %d, %v; want %d", name, got, err, c.want)
		}
	}
	for _, root := range []fstest.MapFS{{}, files("proc/meminfo", "MemTotal: 1 kB\n")} {
		if _, err := available(root); err == nil || !strings.Contains(err.Error(), "not known") {
			t.Errorf("error %v", err)
		}
	}
}

func TestTryAlloc(t *testing.T) {
	b, err := TryAlloc(100)
	if err != nil || b.Len() != 100 || b.OnGoHeap() {
		t.Fatalf("%v, %v", b, err)
	}
	b.Free()
	for _, n := range []int{-1, 1 << 62} {
		if _, err := TryAlloc(n); err == nil || !strings.Contains(err.Error(), "bytes") {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}
