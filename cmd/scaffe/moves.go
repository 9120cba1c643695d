package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/exchange"
	"github.com/scaffe/scaffe/internal/cmdline"
	"github.com/scaffe/scaffe/launch"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/syncer/coordinator"
)

// moves is between which ranks, how and when parameters and gradients move:
// what train and replay have in common.
type moves struct {
	design exchange.Design
	asked  coordinator.Asked // the schemes
	roles
	credit int
	sparse *coordinator.Sparse // nil: the default
	spec   spec.Spec
	bucket int
	launch launch.Options
}

func moveFlags() []cli.Flag {
	designs := exchange.Names()
	return slices.Concat([]cli.Flag{
		cmdline.Checked("design", exchange.SCOBR.String(), "`DESIGN` of the communication: "+cmdline.Or(designs),
			cmdline.Parsed(exchange.Parse, "want "+cmdline.Or(designs)), designs...),
		schemeFlag(), sparsityFlag(),
	}, roleFlags(), []cli.Flag{
		cmdline.Checked("bucket", auto, "group neighboring layers into buckets of at least `SIZE` bytes, such as 1M; auto chooses by the network",
			cmdline.Parsed(parseBucket, "want a size such as 256K or 4M, or auto"), auto),
		cmdline.Checked("credit", auto, fmt.Sprintf("let at most `N` slices, or messages that come to so many bytes, be under way from a rank to other nodes together, the most urgent first; "+
			"off binds each link by itself; auto with slices is one for each node that it sends to, %d at least, three for two of them where servers are apart, and two where these are more than %d, else off", coordinator.LeastCredit, coordinator.FewPeers),
			cmdline.Parsed(parseCredit, ""), auto, creditOff),
	}, selectionFlags(), []cli.Flag{
		localFlag(),
		cmdline.Duration("deadline", nbc.DefaultDeadline, "abort a collective that takes longer than `TIME`, naming the rank at fault"),
		cmdline.Duration("max-deadline", nbc.DefaultMaxDeadline, "wait up to `TIME` for ranks that are late but still answer"),
	})
}

// schemeFlag says how replicas are kept in step. Its alias is its name of before.
func schemeFlag() cli.Flag {
	f := cmdline.Checked("scheme", coordinator.Auto.String(), "`SCHEME` of the net, and of layers by name, such as auto,fc6=sfb,conv*=allreduce: "+
		"sum gradients at the root, which updates and broadcasts (reduce), on every rank (allreduce), at servers, KV pair by KV pair (ps), "+
		"or send factors of inner products to all (sfb), or to each layer's one server (adam), or a bit for each of their values (onebit, lossy), or the largest of what gradients come to (dgc, lossy); auto takes the fastest for each layer, poseidon ps or sfb",
		cmdline.Parsed(coordinator.ParseAsked, ""), coordinator.Names()...)
	f.Aliases = []string{"aggregate"}
	return f
}

// creditOff, for --credit, is no credit.
const creditOff = "off"

// parseCredit returns a credit as coordinator.Credit takes it.
func parseCredit(s string) (int, error) {
	switch s {
	case auto:
		return 0, nil
	case creditOff:
		return coordinator.NoCredit, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > math.MaxInt32 {
		return 0, fmt.Errorf("invalid credit %q: want a number of messages, such as %d, or %s to bind each link by itself", s, coordinator.FewPeers, creditOff)
	}
	return n, nil
}

// auto, for --bucket and --credit, leaves it to the program.
const auto = "auto"

func parseBucket(s string) (int, error) {
	if s == auto {
		return 0, nil
	}
	return parseSize(s)
}

// readMoves reads the flags.
func readMoves(c *cli.Context) (m moves, err error) {
	if m.launch.Collectives, err = selectionOptions(c); err != nil {
		return m, err
	}
	// It is for gradients and parameters; what else ranks tell each other is selected for.
	m.spec, m.launch.Collectives.Spec = m.launch.Collectives.Spec, spec.Spec{}
	m.launch.Local = c.Int("local")
	m.launch.Engine.Deadline, m.launch.Engine.MaxDeadline = c.Duration("deadline"), c.Duration("max-deadline")
	if m.design, err = exchange.Parse(c.String("design")); err != nil {
		return m, err
	}
	if m.asked, err = coordinator.ParseAsked(c.String("scheme")); err != nil {
		return m, err
	}
	if m.roles, err = readRoles(c); err != nil {
		return m, err
	}
	for _, flag := range []string{"placement", "pull"} {
		if one, alone := m.asked.One(); c.IsSet(flag) && alone && one != exchange.PS {
			return m, cmdline.Usagef("--%s is of servers, which --scheme %v has not: use --scheme ps", flag, one)
		}
	}
	if m.credit, err = parseCredit(c.String("credit")); err != nil {
		return m, err
	}
	if m.sparse, err = readSparse(c, m.asked); err != nil {
		return m, err
	}
	m.bucket, err = parseBucket(c.String("bucket"))
	return m, err
}

// sparsityFlag says what the scheme dgc sends.
func sparsityFlag() cli.Flag {
	return cmdline.Checked("sparsity", fmt.Sprint(coordinator.DefaultSparse.Sparsity), "with --scheme dgc, hold back this `PART` of the values of gradients, from 0 to less than 1",
		cmdline.Parsed(parseSparsity, ""))
}

func parseSparsity(s string) (float64, error) {
	x, err := strconv.ParseFloat(s, 64)
	if err == nil {
		err = coordinator.Sparse{Sparsity: x}.Check()
	}
	if err != nil {
		return 0, fmt.Errorf("invalid sparsity %q: want a part of the values that is held back, from 0 to less than 1, such as 0.999", s)
	}
	return x, nil
}

// readSparse reads --sparsity, and returns nil where it is not given.
func readSparse(c *cli.Context, asked coordinator.Asked) (*coordinator.Sparse, error) {
	if !c.IsSet("sparsity") {
		return nil, nil
	}
	x, err := parseSparsity(c.String("sparsity"))
	if err != nil {
		return nil, err
	}
	return &coordinator.Sparse{Sparsity: x}, needsDGC(c, "sparsity", asked)
}

// needsDGC refuses a flag where no layer is asked to go by dgc.
func needsDGC(c *cli.Context, flag string, asked coordinator.Asked) error {
	systems := strings.Split(c.String("systems"), ",") // replay's
	if slices.Contains(asked.Schemes(), exchange.DGC) || slices.Contains(systems, "dgc") || slices.Contains(systems, "all") {
		return nil
	}
	return cmdline.Usagef("--%s is of the scheme dgc: use --scheme dgc, or remove --%s", flag, flag)
}
