package workload

import (
	"embed"
	"fmt"
	"slices"
	"strings"
	"time"
)

//go:embed nets/*.work
var nets embed.FS

// machines are the GPUs of published times, each one GPU: half a K80 board.
// Peaks are single precision, as their maker gives them, without boost where
// there is a choice.
var machines = map[string]struct {
	title string
	Machine
}{
	"k80":     {"one GPU of a Tesla K80", Machine{2.8e12, 240e9}},
	"titanx":  {"GeForce GTX Titan X (Maxwell)", Machine{6.14e12, 336e9}},
	"titanxp": {"Titan X (Pascal)", Machine{10.16e12, 480e9}},
	"gtx1080": {"GeForce GTX 1080", Machine{8.87e12, 320e9}},
	"p100":    {"Tesla P100 (SXM2)", Machine{10.6e12, 732e9}},
	"p4000":   {"Quadro P4000", Machine{5.3e12, 243e9}},
}

// Who published.
const (
	tensorflow = "TensorFlow benchmarks, May 2017 (tensorflow.org/performance/benchmarks, in github.com/tensorflow/docs site/en/r1/guide/performance/benchmarks.md), synthetic data, cuDNN 5.1"
	cnn        = "github.com/jcjohnson/cnn-benchmarks (README), Torch, cuDNN 5.1"
	sockeye    = "sizes: Hieber et al., Sockeye, 2017 (arXiv:1712.05690), its defaults; vocabularies of IWSLT15 English to Vietnamese, Luong and Manning 2015"
	poseidon   = "Zhang et al., Poseidon, USENIX ATC 2017"
)

// published are the times of whole nets; assumed ones say so.
var published = []struct {
	net, gpu          string
	batch             int
	rate              float64 // images per second, or
	forward, backward float64 // milliseconds
	source, remark    string
}{
	{"alexnet", "k80", 512, 656, 0, 0, tensorflow, "one K80 of Google Compute Engine; its AlexNet is close to Caffe's, without groups"},
	{"alexnet", "p100", 512, 2987, 0, 0, tensorflow, "NVIDIA DGX-1; its AlexNet is close to Caffe's, without groups"},
	{"alexnet", "titanx", 256, 1024, 0, 0, poseidon, "section 2.2: 0.25 s for a batch"},
	{"alexnet", "titanxp", 16, 0, 5.04, 9.52, cnn, ""},
	{"alexnet", "gtx1080", 16, 0, 7.00, 13.74, cnn, ""},
	{"googlenet", "titanx", 128, 257, 0, 0, poseidon, "section 5.1, Caffe"},
	{"googlenet", "titanxp", 16, 0, 12.06, 27.08, cnn, "Inception-V1"},
	{"googlenet", "gtx1080", 16, 0, 16.08, 40.08, strings.Replace(cnn, "5.1", "5.0", 1), "Inception-V1"},
	{"vgg19", "titanx", 32, 35.5, 0, 0, poseidon, "section 5.1, Caffe"},
	{"vgg19", "titanxp", 16, 0, 48.09, 99.23, cnn, ""},
	{"vgg19", "gtx1080", 16, 0, 68.95, 141.44, cnn, ""},
	{"vgg19_22k", "titanx", 32, 34.6, 0, 0, poseidon, "section 5.1, Caffe"},
	{"inception_v3", "k80", 64, 30.5, 0, 0, tensorflow, "one K80 of Google Compute Engine"},
	{"inception_v3", "titanx", 32, 43.2, 0, 0, poseidon, "section 5.1, TensorFlow"},
	{"inception_v3", "p100", 64, 142, 0, 0, tensorflow, "NVIDIA DGX-1"},
	{"resnet50", "k80", 64, 51.9, 0, 0, tensorflow, "one K80 of Google Compute Engine"},
	{"resnet50", "p100", 64, 219, 0, 0, tensorflow, "NVIDIA DGX-1"},
	{"resnet50", "titanx", 16, 0, 55.75, 103.87, cnn, ""},
	{"resnet50", "titanxp", 16, 0, 35.03, 68.54, cnn, ""},
	{"resnet50", "gtx1080", 16, 0, 50.64, 99.18, cnn, ""},
	{"resnet152", "k80", 32, 20.0, 0, 0, tensorflow, "one K80 of Google Compute Engine"},
	{"resnet152", "p100", 64, 91.8, 0, 0, tensorflow, "NVIDIA DGX-1"},
	{"resnet152", "titanx", 16, 0, 124.04, 221.41, cnn, ""},
	{"resnet152", "titanxp", 16, 0, 75.45, 142.47, cnn, ""},
	{"sockeye", "p4000", 64, 400, 0, 0, sockeye, "sentences of 20 words; assumed, a quarter of the peak: nobody has published it; --jitter stands for sentences of different length"},
	{"resnet152", "gtx1080", 16, 0, 109.32, 204.98, cnn, ""},
}

// Builtins lists the names of the built-in profiles, NET-GPU.
func Builtins() []string {
	var names []string
	for _, p := range published {
		names = append(names, p.net+"-"+p.gpu)
	}
	slices.Sort(names)
	return names
}

// Builtin returns the built-in profile of that name.
func Builtin(name string) (*Profile, error) {
	for _, t := range published {
		if t.net+"-"+t.gpu != name {
			continue
		}
		w, err := BuiltinWork(t.net)
		if err != nil {
			return nil, err
		}
		m := machines[t.gpu]
		what := fmt.Sprintf("%.4g images/s, batch %d", t.rate, t.batch)
		from := Published{Batch: t.batch}
		if t.rate > 0 {
			from.Total = seconds(float64(t.batch) / t.rate)
		} else {
			what = fmt.Sprintf("forward %.5g ms, backward %.5g ms, batch %d", t.forward, t.backward, t.batch)
			from.Forward, from.Backward = time.Duration(t.forward*1e6), time.Duration(t.backward*1e6)
		}
		if t.remark != "" {
			what += " (" + t.remark + ")"
		}
		from.Source = fmt.Sprintf("%s: %s\n%s\nper-layer times: published total, spread by FLOPs and bytes at %.4g TFLOPS and %.4g GB/s",
			m.title, what, t.source, m.FLOPS/1e12, m.Bandwidth/1e9)
		p, err := w.Spread(m.Machine, from)
		if err != nil {
			return nil, fmt.Errorf("built-in profile %s: %w", name, err)
		}
		p.Name = name
		return p, nil
	}
	return nil, fmt.Errorf("unknown built-in profile %q: want one of %s", name, strings.Join(Builtins(), ", "))
}

// BuiltinWork returns the work of a net that built-in profiles are made of.
func BuiltinWork(name string) (*Work, error) {
	file := "nets/" + name + ".work"
	text, err := nets.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return ParseWork(file, string(text))
}
