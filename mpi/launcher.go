package mpi

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Launcher is what the environment says about who started this process. A
// Launcher without a name means that it was started without one.
type Launcher struct {
	Name     string   // in words: "the mpirun of Open MPI"
	Families []string // the library families whose ranks it can join; nil: any
	Size     int      // how many ranks it started; 0 if unknown
	Rank     int      // which of them this is; -1 if unknown
	Variable string   // the environment variable by which it was recognized
}

// launchers are the variables by which each launcher is recognized, the most
// specific first. Hydra is the mpirun of MPICH and its relatives; Slurm's PMI2
// plug-in sets PMI_SIZE too, so Hydra is recognized by a second variable.
var launchers = []struct {
	size, rank, also string // also: a variable that must be set as well
	name             string
	families         []string
}{
	{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "", "the mpirun of Open MPI", []string{"openmpi"}},
	{"MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK", "", "mpirun_rsh of MVAPICH2", []string{"mpich"}},
	{"PMI_SIZE", "PMI_RANK", "MPI_LOCALNRANKS", "the mpirun of MPICH (Hydra)", []string{"mpich"}},
	{"PMI_SIZE", "PMI_RANK", "HYDI_CONTROL_FD", "the mpirun of MPICH (Hydra)", []string{"mpich"}},
	{"MPI_LOCALNRANKS", "MPI_LOCALRANKID", "", "the mpirun of MPICH (Hydra)", []string{"mpich"}},
	{"SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "", "srun of Slurm", nil},
	{"PMI_SIZE", "PMI_RANK", "", "a PMI launcher", nil},
	{"", "PMIX_RANK", "PMIX_NAMESPACE", "a PMIx launcher", nil},
}

// DetectLauncher reads the environment of this process.
func DetectLauncher() Launcher { return detectLauncher(os.LookupEnv) }

func detectLauncher(lookup func(string) (string, bool)) Launcher {
	number := func(name string, missing int) int {
		s, _ := lookup(name)
		n, err := strconv.Atoi(s)
		if err != nil {
			return missing
		}
		return n
	}
	for _, l := range launchers {
		mark := l.size
		if mark == "" {
			mark = l.rank
		}
		_, marked := lookup(mark)
		also := true
		if l.also != "" {
			_, also = lookup(l.also)
		}
		if !marked || !also {
			continue
		}
		found := Launcher{Name: l.name, Families: l.families, Rank: number(l.rank, -1), Variable: mark}
		if l.size != "" {
			found.Size = number(l.size, 0)
		}
		return found
	}
	return Launcher{Rank: -1}
}

// What launchers tell the ranks that they start, by how the names begin; of Open MPI's parameters, which it also sets by such, those that
// are of the job. Others choose among the library's parts.
var (
	toldRanks = []string{"OMPI_", "PMIX_", "PMI_", "PRTE_", "HYDI_", "HYDRA_", "MPI_LOCAL", "MV2_COMM_", "SLURM_"}
	ofTheJob  = []string{"orte_", "ess", "pmix", "plm", "ras", "rmaps"}
)

// Alone returns an environment without what a launcher has told this process: one that is started with it is the only rank of its world.
func Alone(environment []string) []string {
	begins := func(name string, how []string) bool {
		return slices.ContainsFunc(how, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
	}
	var kept []string
	for _, v := range environment {
		name, _, _ := strings.Cut(v, "=")
		parameter, is := strings.CutPrefix(name, "OMPI_MCA_")
		if is && !begins(parameter, ofTheJob) || !begins(name, toldRanks) {
			kept = append(kept, v)
		}
	}
	return append(kept, "OMPI_MCA_ess_singleton_isolated=1") // no daemon of Open MPI's for what a lone rank might spawn
}

// launcherCommands are how the names of the launchers' programs begin.
var launcherCommands = []string{"mpi", "orte", "prte", "hydra"}

// LauncherProcesses returns the process numbers of the launcher's programs that
// this process descends from, the nearest first: mpirun where it runs on this
// machine, and its helpers. It looks at names alone.
func LauncherProcesses() []int {
	var pids []int
	for pid := os.Getppid(); pid > 1; pid = parentOf(pid) {
		exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		if err != nil {
			break // another user's
		}
		if isLauncherCommand(filepath.Base(exe)) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func isLauncherCommand(name string) bool {
	return slices.ContainsFunc(launcherCommands, func(l string) bool { return strings.HasPrefix(name, l) })
}

// parentOf returns the parent of a process, 0 if that is unknown.
func parentOf(pid int) int {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The second field is the command in parentheses, which may hold blanks.
	after := string(stat[strings.LastIndexByte(string(stat), ')')+1:])
	if fields := strings.Fields(after); len(fields) > 1 {
		n, _ := strconv.Atoi(fields[1])
		return n
	}
	return 0
}

// serves reports whether ranks of the family can find each other under l.
func (l Launcher) serves(family string) bool {
	return l.Families == nil || slices.Contains(l.Families, family)
}

// LauncherError says that this process was started as one of several ranks by
// a launcher under which it cannot find the others.
type LauncherError struct {
	Launcher Launcher
	Built    string // the library in the program; "" for none
}

// Error names the launcher, the library, and two ways to fix it.
func (e *LauncherError) Error() string {
	n := strconv.Itoa(e.Launcher.Size)
	if e.Launcher.Size == 0 {
		n = "several"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "mpi: %s started %s ranks (%s), but this program ", e.Launcher.Name, n, e.Launcher.Variable)
	if e.Built == "" {
		fmt.Fprintf(&b, "was built without MPI, so each would train alone: rebuild it with `%s`, or run it without mpirun (`--local %s` runs ranks in one process)",
			makeFor(e.Launcher, "openmpi"), n)
		return b.String()
	}
	built := ParseLibrary(e.Built)
	if e.Launcher.Families == nil {
		fmt.Fprintf(&b, "has %s, whose ranks do not find each other under it: start it with %s, or with srun's --mpi= set to a plug-in that the library was built with (`srun --mpi=list`)",
			e.Built, mpirunOf(built))
		return b.String()
	}
	fmt.Fprintf(&b, "has %s, whose ranks do not find each other under it: start it with %s, or rebuild it with `%s`",
		e.Built, mpirunOf(built), makeFor(e.Launcher, built.Family()))
	return b.String()
}

func makeFor(l Launcher, otherwise string) string {
	if len(l.Families) > 0 {
		otherwise = l.Families[0]
	}
	return "make MPI=" + otherwise + " build"
}

// mpirunOf says how to start a program that has library l. The suffixed names
// are Debian's and Ubuntu's.
func mpirunOf(l Library) string {
	switch l.Family() {
	case "openmpi":
		return "Open MPI's mpirun (mpirun.openmpi on Debian and Ubuntu)"
	case "mpich":
		return l.Name + "'s mpirun (mpirun.mpich on Debian and Ubuntu)"
	}
	return "the mpirun of " + l.Name
}

// checkLauncher is the check before MPI is started, since the wrong launcher may
// make MPI_Init fail or hang. built is "" for a program without MPI.
func checkLauncher(l Launcher, built string) error {
	if l.Size <= 1 {
		return nil
	}
	if built != "" && l.serves(ParseLibrary(built).Family()) {
		return nil
	}
	return &LauncherError{Launcher: l, Built: built}
}

// checkWorld is the check after it: a world of one rank although the launcher
// started several means that they did not find each other.
func checkWorld(l Launcher, built string, size int) error {
	if size == 1 && l.Size > 1 {
		return &LauncherError{Launcher: l, Built: built}
	}
	return nil
}
