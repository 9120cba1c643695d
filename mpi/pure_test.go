package mpi

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/scaffe/scaffe/internal/host"
)

func TestParseLibrary(t *testing.T) {
	for said, want := range map[string]Library{
		"Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4, repo rev: v4.1.4, May 26, 2022": {"Open MPI", "4.1.4"},
		"Open MPI v5.0.3rc2, package: x":                            {"Open MPI", "5.0.3rc2"},
		"MPICH Version:\t4.0.2\nMPICH Release date:\tThu Apr  7":    {"MPICH", "4.0.2"},
		"MVAPICH2 Version      :\t2.3.7\nMVAPICH2 Release date : x": {"MVAPICH2", "2.3.7"},
		"MVAPICH Version : 3.0\n":                                   {"MVAPICH", "3.0"},
		"Intel(R) MPI Library 2021.10 for Linux* OS\n":              {"Intel MPI", "2021.10"},
		"Some Vendor MPI with many words 7":                         {"Some Vendor MPI", ""},
		Library{Name: "MPICH", Version: "4.0.2"}.String():           {"MPICH", "4.0.2"},
		Library{Name: "Open MPI", Version: "4.1.4"}.String():        {"Open MPI", "4.1.4"},
		Library{Name: "Intel MPI", Version: "2021.10.0"}.String():   {"Intel MPI", "2021.10.0"},
		"": {},
	} {
		if got := ParseLibrary(said); got != want {
			t.Errorf("ParseLibrary(%q) = %+v, want %+v", said, got, want)
		}
	}
}

func TestCheckLibrary(t *testing.T) {
	open41, open50 := Library{"Open MPI", "4.1.4"}, Library{"Open MPI", "5.0.3"}
	mpich, mvapich := Library{"MPICH", "4.0.2"}, Library{"MVAPICH2", "2.3.7"}
	for _, c := range []struct {
		name         string
		asked        string
		built, found Library
		note, err    string
	}{
		{"the same", "Open MPI 4.1.4", open41, open41, "", ""},
		{"nobody asked", "", mpich, mpich, "", ""},
		{"a later release of the same interface", "Open MPI 4.1.4", open41, open50, "built for Open MPI 4.1.4, running with Open MPI 5.0.3", ""},
		{"a sibling with the same interface", "", mpich, mvapich, "running with MVAPICH2", ""},
		{"another interface", "", mpich, open41, "", "built for MPICH 4.0.2 but the dynamic linker found Open MPI 4.1.4"},
		{"an old object", "MPICH 4.0.2", open41, open41, "", "to use MPICH 4.0.2 but was compiled against Open MPI 4.1.4"},
	} {
		t.Run(c.name, func(t *testing.T) {
			note, err := checkLibrary(c.asked, c.built, c.found)
			if !strings.Contains(note, c.note) || (note == "") != (c.note == "") {
				t.Errorf("note %q, want %q", note, c.note)
			}
			wantError(t, err, c.err)
		})
	}
}

func wantError(t *testing.T, err error, parts ...string) {
	t.Helper()
	if len(parts) == 1 && parts[0] == "" {
		if err != nil {
			t.Errorf("unexpected error: %v", err)
		}
		return
	}
	for _, p := range parts {
		if err == nil || !strings.Contains(err.Error(), p) {
			t.Errorf("error %v does not say %q", err, p)
		}
	}
}

// environments as the launchers of each library leave them.
var environments = map[string]map[string]string{
	"nobody":     {},
	"openmpi":    {"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "2", "PMIX_RANK": "2", "PMIX_NAMESPACE": "x"},
	"hydra":      {"PMI_SIZE": "4", "PMI_RANK": "3", "PMI_FD": "5", "MPI_LOCALNRANKS": "4", "MPI_LOCALRANKID": "3"},
	"mpirun_rsh": {"MV2_COMM_WORLD_SIZE": "4", "MV2_COMM_WORLD_RANK": "1"},
	"srun":       {"SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "1", "PMI_SIZE": "4", "PMI_RANK": "1"},
	"one rank":   {"OMPI_COMM_WORLD_SIZE": "1", "OMPI_COMM_WORLD_RANK": "0"},
}

func launcherOf(name string) Launcher {
	return detectLauncher(func(v string) (string, bool) {
		s, ok := environments[name][v]
		return s, ok
	})
}

func TestDetectLauncher(t *testing.T) {
	for name, want := range map[string]Launcher{
		"nobody":     {Rank: -1},
		"openmpi":    {"the mpirun of Open MPI", []string{"openmpi"}, 4, 2, "OMPI_COMM_WORLD_SIZE"},
		"hydra":      {"the mpirun of MPICH (Hydra)", []string{"mpich"}, 4, 3, "PMI_SIZE"},
		"mpirun_rsh": {"mpirun_rsh of MVAPICH2", []string{"mpich"}, 4, 1, "MV2_COMM_WORLD_SIZE"},
		"srun":       {"srun of Slurm", nil, 4, 1, "SLURM_STEP_NUM_TASKS"},
	} {
		if diff := cmp.Diff(want, launcherOf(name)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// A process that is started alone has no launcher, and the settings that are no launcher's.
func TestAlone(t *testing.T) {
	for name, environment := range environments {
		given := []string{"PATH=/bin", "OMPI_MCA_pml=ucx", "OMPI_MCA_orte_ess_num_procs=4"}
		for k, v := range environment {
			given = append(given, k+"="+v)
		}
		if diff := cmp.Diff([]string{"PATH=/bin", "OMPI_MCA_pml=ucx", "OMPI_MCA_ess_singleton_isolated=1"}, Alone(given)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestWrongLauncherIsRefusedBeforeMPIStarts(t *testing.T) {
	const openMPI, mpich = "Open MPI 4.1.4", "MPICH 4.0.2"
	for _, c := range []struct {
		launcher, built string
		parts           []string
	}{
		{"nobody", openMPI, []string{""}},
		{"nobody", "", []string{""}},
		{"one rank", mpich, []string{""}},
		{"openmpi", openMPI, []string{""}},
		{"hydra", mpich, []string{""}},
		{"hydra", "MVAPICH2 2.3.7", []string{""}},
		{"mpirun_rsh", "MVAPICH2 2.3.7", []string{""}},
		{"srun", openMPI, []string{""}},
		{"hydra", openMPI, []string{"mpirun of MPICH (Hydra) started 4 ranks", "has Open MPI 4.1.4", "mpirun.openmpi", "make MPI=mpich build"}},
		{"openmpi", mpich, []string{"mpirun of Open MPI started 4 ranks", "has MPICH 4.0.2", "mpirun.mpich", "make MPI=openmpi build"}},
		{"mpirun_rsh", openMPI, []string{"mpirun_rsh of MVAPICH2", "make MPI=mpich build"}},
		{"openmpi", "", []string{"without MPI", "make MPI=openmpi build", "--local 4"}},
		{"hydra", "", []string{"without MPI", "make MPI=mpich build", "--local 4"}},
		{"srun", "", []string{"srun of Slurm started 4 ranks", "without MPI"}},
	} {
		t.Run(c.launcher+" and "+c.built, func(t *testing.T) {
			wantError(t, checkLauncher(launcherOf(c.launcher), c.built), c.parts...)
		})
	}
}

func TestLoneWorldsAreNoticedAfterMPIStarted(t *testing.T) {
	wantError(t, checkWorld(launcherOf("srun"), "Open MPI 4.1.4", 1), "srun of Slurm", "--mpi=")
	wantError(t, checkWorld(launcherOf("openmpi"), "Open MPI 4.1.4", 1), "started 4 ranks")
	wantError(t, checkWorld(launcherOf("openmpi"), "Open MPI 4.1.4", 4), "")
	wantError(t, checkWorld(launcherOf("nobody"), "Open MPI 4.1.4", 1), "")
}

func TestNodesAreNumberedByTheirLowestRank(t *testing.T) {
	// Ranks dealt to three machines as mpirun --map-by node does.
	var at []place
	for _, lowest := range []int64{0, 1, 2, 0, 1, 2, 0} {
		at = append(at, place{lowest: lowest})
	}
	got := newNodes(at, 3)
	want := Nodes{Of: []int{0, 1, 2, 0, 1, 2, 0}, Count: 3, LocalRank: 1, LocalSize: 3}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]int{0, 3, 6}, got.Ranks(0)); diff != "" {
		t.Error(diff)
	}
	if got.String() != "7 ranks on 3 nodes" {
		t.Error(got)
	}
}

// Ranks of other containers of this rank's machine count where they may have its cores.
func TestRivalsAreOnTheSameCoresOfOtherNodes(t *testing.T) {
	const here, elsewhere = 7, 8
	low, high := host.CoreSet{0: 0b0011}, host.CoreSet{0: 0b1100}
	at := []place{
		{0, here, low},
		{0, here, low},      // on this rank's node
		{2, here, low},      // a rival
		{2, here, high},     // on other cores
		{4, elsewhere, low}, // of another machine
		{5, 0, low},         // who knows where
		{6, here, low.Or(high)},
	}
	if got := newNodes(at, 0).Rivals; got != 2 {
		t.Errorf("%d ranks share this rank's cores, want 2", got)
	}
	if got := newNodes(at, 5).Rivals; got != 0 {
		t.Errorf("%d ranks share the cores of one whose kernel is not known", got)
	}
}

func TestParentOf(t *testing.T) {
	if got := parentOf(os.Getpid()); got != os.Getppid() {
		t.Errorf("parent %d, want %d", got, os.Getppid())
	}
	if got := parentOf(-1); got != 0 {
		t.Errorf("a process that does not exist has parent %d", got)
	}
}

func TestIsLauncherCommand(t *testing.T) {
	for name, want := range map[string]bool{"mpirun.openmpi": true, "mpiexec.hydra": true, "orterun": true, "prterun": true, "bash": false} {
		if isLauncherCommand(name) != want {
			t.Errorf("%s: %v", name, !want)
		}
	}
}
