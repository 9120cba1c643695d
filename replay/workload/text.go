package workload

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
)

// ParseError says what is wrong with a file, and where.
type ParseError struct {
	Name string // of the file
	Line int    // from 1; 0: the whole file
	Err  error
}

// Error returns name, line and what is wrong.
func (e *ParseError) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %v", e.Name, e.Err)
	}
	return fmt.Sprintf("%s:%d: %v", e.Name, e.Line, e.Err)
}

// Unwrap returns what is wrong.
func (e *ParseError) Unwrap() error { return e.Err }

// Read reads a profile from a file.
func Read(path string) (*Profile, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, string(text))
}

// Load returns the built-in profile of that name, or reads a file.
func Load(name string) (*Profile, error) {
	if p, err := Builtin(name); err == nil {
		return p, nil
	}
	p, err := Read(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("unknown profile %q: neither a file nor a built-in profile (scaffe replay --list shows those)", name)
	}
	return p, err
}

// Parse reads the text form; name is what errors call it. Errors are
// *ParseError.
func Parse(name, text string) (*Profile, error) {
	p := &Profile{Name: name}
	var source []string
	seen := map[string]bool{}
	err := eachLine(name, text, func(key string, l *line) error {
		switch key {
		case "source":
			source = append(source, l.rest())
			return nil
		case "layer":
			return p.parseLayer(l)
		}
		if seen[key] {
			return fmt.Errorf("duplicate key %s", key)
		}
		seen[key] = true
		var err error
		switch key {
		case "net":
			p.Net, err = l.word("net name")
		case "batch":
			p.Batch, err = l.integer("batch size")
		case "update_ms":
			p.Update, err = l.milliseconds("update time")
		case "factor_rows":
			p.FactorRows, err = l.integer("number of rows")
		default:
			return fmt.Errorf("unknown key %q: want net, source, batch, update_ms, factor_rows or layer", key)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	p.Source = strings.Join(source, "\n")
	if err := p.Validate(); err != nil {
		return nil, &ParseError{Name: name, Err: err}
	}
	return p, nil
}

func (p *Profile) parseLayer(l *line) (err error) {
	var y Layer
	var errs [4]error
	y.Name, errs[0] = l.word("layer name")
	y.Type, errs[1] = l.word("layer type")
	y.Forward, errs[2] = l.milliseconds("forward time")
	y.Backward, errs[3] = l.milliseconds("backward time")
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	if y.Params, y.Rows, y.Cols, err = l.params(); err != nil {
		return err
	}
	if len(p.Layers) == maxLayers {
		return fmt.Errorf("more than %d layers", maxLayers)
	}
	p.Layers = append(p.Layers, y)
	return y.validate()
}

// String returns the text form, which Parse reads.
func (p *Profile) String() string {
	var b strings.Builder
	b.WriteString("# scaffe profile\n")
	if p.Net != "" {
		fmt.Fprintf(&b, "net %s\n", quote(p.Net))
	}
	for s := range strings.Lines(p.Source) {
		if s = oneLine(s); s != "" {
			fmt.Fprintf(&b, "source %s\n", s)
		}
	}
	fmt.Fprintf(&b, "batch %d\nupdate_ms %s\n", p.Batch, formatMS(p.Update))
	if p.FactorRows > 0 {
		fmt.Fprintf(&b, "factor_rows %d\n", p.FactorRows)
	}
	fmt.Fprintf(&b, "# %d parameters, %d bytes; forward %v, backward %v, %.4g samples/s\n", p.Elements(), p.Bytes(), p.Forward(), p.Backward(), p.Rate())
	w := tabwriter.NewWriter(&b, 0, 0, 1, ' ', 0)
	fmt.Fprintf(w, "# layer name\ttype\tforward_ms\tbackward_ms\telements of each parameter, of a matrix ROWSxCOLUMNS\n")
	for _, l := range p.Layers {
		fmt.Fprintf(w, "layer %s\t%s\t%s\t%s", quote(l.Name), quote(l.Type), formatMS(l.Forward), formatMS(l.Backward))
		writeParams(w, l.Params, l.Rows, l.Cols)
	}
	_ = w.Flush()
	return trimLines(b.String())
}

func writeParams(w *tabwriter.Writer, params []int, rows, cols int) {
	fmt.Fprint(w, "\t")
	for i, n := range params {
		if i == 0 && rows > 0 {
			fmt.Fprintf(w, "%dx%d ", rows, cols)
		} else {
			fmt.Fprintf(w, "%d ", n)
		}
	}
	fmt.Fprintln(w)
}

// trimLines takes the blanks off the ends of lines.
func trimLines(s string) string {
	var b strings.Builder
	for l := range strings.Lines(s) {
		b.WriteString(strings.TrimRight(l, " \t\n"))
		b.WriteByte('\n')
	}
	return b.String()
}

// oneLine returns the words of s with a blank between each two.
func oneLine(s string) string { return strings.Join(strings.Fields(strings.ToValidUTF8(s, "?")), " ") }

// quote returns a word as files have it.
func quote(s string) string {
	plain := s != "" && strings.IndexFunc(s, func(r rune) bool {
		return unicode.IsSpace(r) || !unicode.IsPrint(r) || r == '#' || r == '"' || r == unicode.ReplacementChar
	}) < 0
	if plain {
		return s
	}
	return strconv.Quote(s)
}

// formatMS returns a time in milliseconds, exactly.
func formatMS(d time.Duration) string {
	s := fmt.Sprintf("%d.%06d", d/time.Millisecond, d%time.Millisecond)
	return strings.TrimRight(strings.TrimRight(s, "0"), ".")
}

// parseMS is its inverse.
func parseMS(s string) (time.Duration, bool) {
	whole, part, _ := strings.Cut(s, ".")
	if whole == "" || len(whole) > 10 || len(part) > 6 || strings.HasSuffix(s, ".") {
		return 0, false
	}
	for _, r := range whole + part {
		if r < '0' || r > '9' {
			return 0, false
		}
	}
	n, err := strconv.ParseInt(whole+(part + "000000")[:6], 10, 64)
	return time.Duration(n), err == nil
}

// line is what is left of a line.
type line struct{ text string }

// eachLine calls f for every line that has words, with the first of them. All
// words must be taken.
func eachLine(name, text string, f func(key string, l *line) error) error {
	number := 0
	for s := range strings.Lines(text) {
		number++
		l := &line{s}
		key, ok, err := l.next()
		if ok && err == nil {
			err = f(key, l)
		}
		if ok && err == nil {
			var more string
			if more, ok, err = l.next(); ok && err == nil {
				err = fmt.Errorf("unexpected argument %q of %s", more, key)
			}
		}
		if err != nil {
			return &ParseError{Name: name, Line: number, Err: err}
		}
	}
	return nil
}

// next takes the next word; ok is false where there is none.
func (l *line) next() (word string, ok bool, err error) {
	l.text = strings.TrimLeftFunc(l.text, unicode.IsSpace)
	if l.text == "" || l.text[0] == '#' {
		l.text = ""
		return "", false, nil
	}
	if l.text[0] == '"' {
		q, err := strconv.QuotedPrefix(l.text)
		if err != nil {
			return "", false, fmt.Errorf("missing closing quote: %s", strings.TrimSpace(l.text))
		}
		l.text = l.text[len(q):]
		word, err = strconv.Unquote(q)
		return word, true, err
	}
	end := strings.IndexFunc(l.text, unicode.IsSpace)
	if end < 0 {
		end = len(l.text)
	}
	word, l.text = l.text[:end], l.text[end:]
	return word, true, nil
}

// rest takes all that is left, comments included.
func (l *line) rest() string {
	s := oneLine(l.text)
	l.text = ""
	return s
}

func (l *line) word(what string) (string, error) {
	w, ok, err := l.next()
	if err == nil && !ok {
		err = fmt.Errorf("missing %s", what)
	}
	return w, err
}

func (l *line) integer(what string) (int, error) {
	w, err := l.word(what)
	if err != nil {
		return 0, err
	}
	return parseInteger(w, what)
}

func parseInteger(w, what string) (int, error) {
	n, err := strconv.Atoi(w)
	if err != nil || n < 0 || w[0] == '+' {
		return 0, fmt.Errorf("invalid %s %q: want a whole number", what, w)
	}
	return n, nil
}

// params takes all words that are left: the elements of each parameter, of the
// first perhaps as ROWSxCOLUMNS.
func (l *line) params() (all []int, rows, cols int, err error) {
	const what = "number of elements"
	for {
		w, ok, err := l.next()
		if err != nil || !ok {
			return all, rows, cols, err
		}
		var n int
		if r, c, matrix := strings.Cut(w, "x"); matrix && len(all) == 0 {
			var errs [2]error
			rows, errs[0] = parseInteger(r, "number of rows")
			cols, errs[1] = parseInteger(c, "number of columns")
			if err = errors.Join(errs[:]...); err == nil && (rows < 1 || cols < 1 || rows > maxElements/cols) {
				err = fmt.Errorf("invalid matrix %q: want ROWSxCOLUMNS, such as 4096x25088", w)
			}
			n = rows * cols
		} else {
			n, err = parseInteger(w, what)
		}
		if err != nil {
			return nil, 0, 0, err
		}
		all = append(all, n)
	}
}

func (l *line) milliseconds(what string) (time.Duration, error) {
	w, err := l.word(what)
	if err != nil {
		return 0, err
	}
	d, ok := parseMS(w)
	if !ok {
		return 0, fmt.Errorf("invalid %s %q: want milliseconds such as 12.5 (at most six decimals)", what, w)
	}
	return d, nil
}
