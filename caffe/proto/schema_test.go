package proto

import (
	"fmt"
	"os"
	"sort"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// fieldLines lists every field, enum value and default of a file, a line each.
func fieldLines(file protoreflect.FileDescriptor) []string {
	var out []string
	addEnums := func(es protoreflect.EnumDescriptors) {
		for i := range es.Len() {
			vs := es.Get(i).Values()
			for j := range vs.Len() {
				out = append(out, fmt.Sprintf("enum %s %s = %d", es.Get(i).FullName(), vs.Get(j).Name(), vs.Get(j).Number()))
			}
		}
	}
	addEnums(file.Enums())
	ms := file.Messages()
	for i := range ms.Len() {
		addEnums(ms.Get(i).Enums())
		fs := ms.Get(i).Fields()
		for j := range fs.Len() {
			out = append(out, fieldLine(fs.Get(j)))
		}
	}
	sort.Strings(out)
	return out
}

func fieldLine(f protoreflect.FieldDescriptor) string {
	typ := f.Kind().String()
	switch {
	case f.Message() != nil:
		typ = string(f.Message().FullName())
	case f.Enum() != nil:
		typ = string(f.Enum().FullName())
	}
	line := fmt.Sprintf("%s %s = %d %s %s", f.Parent().FullName(), f.Name(), f.Number(), f.Cardinality(), typ)
	if f.IsPacked() {
		line += " packed"
	}
	if f.HasDefault() && f.Enum() != nil {
		line += fmt.Sprintf(" default %s", f.DefaultEnumValue().Name())
	} else if f.HasDefault() {
		line += fmt.Sprintf(" default %q", f.Default().String())
	}
	return line
}

// TestSchemaIsCaffes holds every field against the table in testdata, whose
// facts were read off the descriptor of BVLC Caffe's own file. It must not be
// regenerated from ours.
func TestSchemaIsCaffes(t *testing.T) {
	text, err := os.ReadFile("testdata/fields.txt")
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Split(strings.TrimSpace(string(text)), "\n")
	if diff := cmp.Diff(want, fieldLines(File_caffe_proto_caffe_proto)); diff != "" {
		t.Errorf("caffe.proto differs from Caffe's format (-Caffe +ours):\n%s", diff)
	}
}
