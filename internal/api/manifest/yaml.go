package manifest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

const (
	maxDepth = 64       // of values in values
	maxJSON  = 64 << 20 // bytes of a file with expanded aliases
	maxNodes = 4 << 20  // values in a file, about: each takes two hundred bytes and more
)

// yamlValue is a part of a YAML document, and the line where the document begins.
type yamlValue struct {
	*yaml.Node
	lineOffset int
}

// yamlDocuments parses the documents of a file separately, so an error in one does not hide
// the others.
func yamlDocuments(data []byte, r *reader) iter.Seq[value] {
	return func(yield func(value) bool) {
		if n := countNodes(data); n > maxNodes {
			r.addErrorAt(1, 1, "it has about %d values, more than the %d that YAML may have: split it, or write it as JSON", n, maxNodes)
			return
		}
		for _, part := range split(data) {
			var doc yaml.Node
			if err := yaml.Unmarshal(part.text, &doc); err != nil {
				line, text := syntaxOf(err)
				r.addErrorAt(part.lineOffset+line, columnOf(part.text, line), "it is not YAML: %s", text)
				if r.isFull() {
					return
				}
				continue
			}
			if doc.Kind == yaml.DocumentNode && !yield(yamlValue{doc.Content[0], part.lineOffset}) {
				return
			}
		}
	}
}

// countNodes estimates the number of values in YAML.
func countNodes(data []byte) (n int) {
	for i, c := range data {
		switch c {
		case ',', '\n', '[', '{', '*':
			n++
		case ':', '-', '?':
			if i+1 < len(data) && (data[i+1] == ' ' || data[i+1] == '\t') {
				n++
			}
		}
	}
	return n
}

type yamlPart struct {
	text       []byte
	lineOffset int
}

// split splits a file at lines that begin with three dashes or dots, which no document contains.
func split(data []byte) (parts []yamlPart) {
	part, line := yamlPart{}, 0
	for text := range bytes.Lines(bytes.TrimPrefix(data, []byte("\ufeff"))) {
		rest, marker := bytes.CutPrefix(text, []byte("---"))
		if !marker {
			rest, marker = bytes.CutPrefix(text, []byte("..."))
		}
		switch {
		case marker && (len(rest) == 0 || bytes.ContainsAny(rest[:1], " \t\r\n")):
			parts = append(parts, part)
			part = yamlPart{append([]byte("   "), rest...), line}
		case bytes.HasPrefix(text, []byte("%")) && len(bytes.TrimSpace(part.text)) == 0:
			part.text = append(part.text, '\n') // a directive
		default:
			if bytes.HasPrefix(text, []byte("\ufeff")) && len(bytes.TrimSpace(part.text)) == 0 {
				text = bytes.TrimPrefix(text, []byte("\ufeff")) // of a file that was appended to another one
			}
			part.text = append(part.text, text...)
		}
		line++
	}
	return append(parts, part)
}

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// syntaxOf splits an error of the parser.
func syntaxOf(err error) (line int, text string) {
	line = 1
	m := yamlLine.FindStringSubmatch(err.Error())
	if m == nil {
		return line, err.Error()
	}
	if n, err := strconv.Atoi(m[1]); err == nil {
		line = n
	}
	return line, err.Error()[len(m[0]):]
}

// columnOf returns the column where the text of a line begins.
func columnOf(text []byte, line int) int {
	for l := range bytes.Lines(text) {
		if line--; line == 0 {
			return 1 + len(l) - len(bytes.TrimLeft(l, " \t"))
		}
	}
	return 1
}

func (v yamlValue) node() *yaml.Node {
	if v.Kind == yaml.AliasNode {
		return v.Alias
	}
	return v.Node
}

func (v yamlValue) place() (line, column int) { return v.lineOffset + v.Line, v.Column }
func (v yamlValue) isNull() bool              { return v.node().ShortTag() == "!!null" }
func (v yamlValue) isObject() bool            { return v.node().Kind == yaml.MappingNode }
func (v yamlValue) text() string              { return v.node().Value }

func (v yamlValue) names() (list []string) {
	if v.isObject() {
		for i := 0; i+1 < len(v.node().Content); i += 2 {
			list = append(list, v.node().Content[i].Value)
		}
	}
	return list
}

func (v yamlValue) member(name string) (value, bool) {
	if v.isObject() {
		content := v.node().Content
		for i := 0; i+1 < len(content); i += 2 {
			if strings.EqualFold(content[i].Value, name) {
				return yamlValue{content[i+1], v.lineOffset}, true
			}
		}
	}
	return nil, false
}

func (v yamlValue) elements() (list []value, ok bool) {
	if v.node().Kind != yaml.SequenceNode {
		return nil, false
	}
	for _, e := range v.node().Content {
		list = append(list, yamlValue{e, v.lineOffset})
	}
	return list, true
}

func (v yamlValue) json(r *reader) json.RawMessage {
	w := &yamlWriter{reader: r, lineOffset: v.lineOffset}
	w.write(v.Node, 0)
	r.written += w.out.Len()
	return w.out.Bytes()
}

// yamlWriter writes YAML as JSON.
type yamlWriter struct {
	*reader
	lineOffset int
	out        bytes.Buffer
	isFull     bool
}

func (w *yamlWriter) addError(n *yaml.Node, format string, args ...any) {
	w.addErrorAt(w.lineOffset+n.Line, n.Column, format, args...)
}

func (w *yamlWriter) write(n *yaml.Node, depth int) {
	if w.written+w.out.Len() > maxJSON || depth > maxDepth {
		if !w.isFull {
			w.addError(n, "it is too large, or too deep: at most %d values in values, and %d MiB with all that aliases stand for", maxDepth, maxJSON>>20)
		}
		w.isFull = true
		return
	}
	switch n.Kind {
	case yaml.AliasNode:
		w.write(n.Alias, depth+1)
	case yaml.SequenceNode:
		w.out.WriteByte('[')
		for i, e := range n.Content {
			if i > 0 {
				w.out.WriteByte(',')
			}
			w.write(e, depth+1)
		}
		w.out.WriteByte(']')
	case yaml.MappingNode:
		w.mapping(n, depth)
	default:
		w.scalar(n)
	}
}

// mapping writes members in their order, followed by merged ones that are not set already.
func (w *yamlWriter) mapping(n *yaml.Node, depth int) {
	w.out.WriteByte('{')
	seen := map[string]bool{}
	w.members(n, depth, seen, false)
	w.out.WriteByte('}')
}

func (w *yamlWriter) members(n *yaml.Node, depth int, seen map[string]bool, merged bool) {
	if depth > maxDepth {
		return
	}
	var merges []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.ShortTag() == "!!merge" {
			merges = append(merges, value)
			continue
		}
		if key.Kind != yaml.ScalarNode {
			w.addError(key, "the name of a property is not a string")
			continue
		}
		if seen[fold(key.Value)] {
			if !merged {
				w.addError(key, "%s is given twice", key.Value)
			}
			continue
		}
		if len(seen) > 0 {
			w.out.WriteByte(',')
		}
		seen[fold(key.Value)] = true
		w.quoted(key.Value)
		w.out.WriteByte(':')
		w.write(value, depth+1)
	}
	for _, m := range merges {
		w.merge(m, depth, seen)
	}
}

func (w *yamlWriter) merge(m *yaml.Node, depth int, seen map[string]bool) {
	if m.Kind == yaml.AliasNode {
		m = m.Alias
	}
	switch m.Kind {
	case yaml.MappingNode:
		w.members(m, depth+1, seen, true)
	case yaml.SequenceNode:
		if depth > maxDepth {
			return
		}
		for _, one := range m.Content {
			w.merge(one, depth+1, seen)
		}
	default:
		w.addError(m, "a merged value is not an object")
	}
}

func (w *yamlWriter) quoted(s string) {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // no string is refused
	}
	w.out.Write(b)
}

func (w *yamlWriter) scalar(n *yaml.Node) {
	switch n.ShortTag() {
	case "!!null":
		w.out.WriteString("null")
	case "!!bool":
		w.out.WriteString(strings.ToLower(n.Value))
	case "!!int", "!!float":
		if json.Valid([]byte(n.Value)) {
			w.out.WriteString(n.Value)
			return
		}
		var u uint64
		var i int64
		var f float64
		switch {
		case n.Decode(&u) == nil:
			w.out.WriteString(strconv.FormatUint(u, 10))
		case n.Decode(&i) == nil:
			w.out.WriteString(strconv.FormatInt(i, 10))
		case n.Decode(&f) == nil && json.Valid(fmt.Append(nil, f)):
			fmt.Fprint(&w.out, f)
		default:
			w.addError(n, "%s is not a JSON number", n.Value)
			w.out.WriteString("null")
		}
	default:
		w.quoted(n.Value)
	}
}
