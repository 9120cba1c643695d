package campaign

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestP3_ParametersByLayer (section 3, Figure 5): one layer of VGG19 has 71.5 % of its parameters; the heaviest layers of nets for images
// come last, the largest array of Sockeye is in its first layer.
func TestP3_ParametersByLayer(t *testing.T) {
	c := ParametersConfig{Name: "p3-5", Out: filepath.Join(t.TempDir(), "p3-5.csv")}
	rows, _, err := c.rows()
	if err != nil {
		t.Fatal(err)
	}
	for _, net := range byProfile(rows) {
		all, most, largest := 0.0, net[0], net[0]
		for i, r := range net {
			all += r.Share
			if r.Layer != i+1 || r.Parameters == 0 {
				t.Errorf("%+v", r)
			}
			if r.Parameters > most.Parameters {
				most = r
			}
			if r.Largest > r.Parameters {
				t.Errorf("%+v", r)
			}
			if r.Largest > largest.Largest {
				largest = r
			}
		}
		if all < 0.999999 || all > 1.000001 {
			t.Errorf("%s: shares of %g in all", net[0].Profile, all)
		}
		switch net[0].Profile {
		case "vgg19-titanx":
			if most.Name != "fc6" || most.Share < 0.7145 || most.Share > 0.7155 || len(net) != 19 {
				t.Errorf("%+v of %d layers", most, len(net))
			}
		case "sockeye-p4000":
			if largest.Layer != 1 {
				t.Errorf("%+v", largest)
			}
		case "resnet50-titanx":
			if most.Layer < len(net)/2 {
				t.Errorf("%+v", most)
			}
		}
	}
	var out bytes.Buffer
	if err := Parameters(c, &out, io.Discard); err != nil || strings.Count(out.String(), "\n") != 5 || !strings.Contains(out.String(), "71.5") {
		t.Errorf("%v\n%s", err, &out)
	}
	text, err := os.ReadFile(c.Out)
	if err != nil || strings.Count(string(text), "\n") != len(rows)+1 || !strings.Contains(string(text), "p3-5,vgg19-titanx,17,fc6,InnerProduct,102764544,102760448,0.71") {
		t.Errorf("%v\n%s", err, text)
	}
	picture, err := os.ReadFile(strings.TrimSuffix(c.Out, ".csv") + ".svg")
	if err != nil || strings.Count(string(picture), `class="bar0"`) != len(rows) {
		t.Errorf("%v\n%s", err, picture)
	}
	for d := xml.NewDecoder(bytes.NewReader(picture)); ; {
		if _, err := d.Token(); err != nil {
			if !errors.Is(err, io.EOF) {
				t.Error(err)
			}
			break
		}
	}
	c.Nets = []string{"vgg19-titanx"}
	if rows, _, err := c.rows(); err != nil || len(rows) != 19 {
		t.Error(rows, err)
	}
	c.Nets = []string{"alexnet-k80"}
	if err := Parameters(c, &out, io.Discard); err == nil || !strings.Contains(err.Error(), `p3-5 has no net "alexnet-k80": want some of resnet50-titanx`) {
		t.Error(err)
	}
	if err := Parameters(ParametersConfig{Name: "p3-6"}, &out, io.Discard); err == nil || !strings.Contains(err.Error(), `unknown figure "p3-6"`) {
		t.Error(err)
	}
}
