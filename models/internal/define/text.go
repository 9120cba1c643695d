package define

import (
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// comment writes text as comment lines.
func comment(b *strings.Builder, text string) {
	for line := range strings.Lines(strings.TrimSpace(text)) {
		b.WriteString(strings.TrimRight("# "+strings.TrimSpace(line), " ") + "\n")
	}
}

// text writes the fields of m that are set, in the order of caffe.proto, one per
// line as in Caffe's own files. (The protobuf library's own writer deliberately
// varies its output.) Notes are comments above their fields.
func text(b *strings.Builder, indent string, m protoreflect.Message, notes map[string]string) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		if !m.Has(fd) {
			continue
		}
		if note := notes[string(fd.Name())]; note != "" {
			comment(b, note)
		}
		if !fd.IsList() {
			field(b, indent, fd, m.Get(fd))
			continue
		}
		for l, k := m.Get(fd).List(), 0; k < l.Len(); k++ {
			field(b, indent, fd, l.Get(k))
		}
	}
}

func field(b *strings.Builder, indent string, fd protoreflect.FieldDescriptor, v protoreflect.Value) {
	b.WriteString(indent + string(fd.Name()))
	if fd.Kind() == protoreflect.MessageKind {
		b.WriteString(" {\n")
		text(b, indent+"  ", v.Message(), nil)
		b.WriteString(indent + "}\n")
		return
	}
	b.WriteString(": " + scalar(fd, v) + "\n")
}

func scalar(fd protoreflect.FieldDescriptor, v protoreflect.Value) string {
	switch fd.Kind() {
	case protoreflect.StringKind:
		return strconv.Quote(v.String())
	case protoreflect.EnumKind:
		return string(fd.Enum().Values().ByNumber(v.Enum()).Name())
	case protoreflect.FloatKind:
		return strconv.FormatFloat(v.Float(), 'g', -1, 32)
	}
	return fmt.Sprint(v.Interface())
}
