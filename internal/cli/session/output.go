package session

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"reflect"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/util/jsonpath"

	v1 "loxilb/api/v1"
	"loxilb/internal/lb"
)

// format is the format of --output.
type format struct {
	word    string // "", wide, json, yaml, name, jsonpath or custom-columns
	path    *jsonpath.JSONPath
	headers []string
	columns []*jsonpath.JSONPath
}

// formatWords are the formats of all commands, and of commands that list objects.
const (
	formatWords = "wide, json and yaml"
	listWords   = "wide, json, yaml, name, jsonpath=TEMPLATE, jsonpath-file=FILE, custom-columns=NAME:PATH,... and custom-columns-file=FILE"
)

// parseFormat parses --output of a command that lists objects, or of another one.
func parseFormat(text string, lists bool) (f format, err error) {
	word, rest, given := strings.Cut(text, "=")
	words := formatWords
	if lists {
		words = listWords
	}
	switch {
	case !given && (word == "" || word == "wide" || word == "json" || word == "yaml" || word == "name" && lists):
		return format{word: word}, nil
	case !given || !lists:
		return f, unknownFormat(text, words)
	}
	if kind, ok := strings.CutSuffix(word, "-file"); ok {
		data, err := os.ReadFile(rest)
		if err != nil {
			return f, fmt.Errorf("--output %s: %w", word, err)
		}
		word, rest = kind, string(data)
		if kind == "custom-columns" {
			if rest, err = columnsOfFile(rest); err != nil {
				return f, fmt.Errorf("--output custom-columns-file: %w", err)
			}
		}
	}
	f.word = word
	switch word {
	case "jsonpath":
		f.path, err = parsePath(rest)
	case "custom-columns":
		err = f.parseColumns(rest)
	default:
		return f, unknownFormat(text, words)
	}
	if err != nil {
		return f, fmt.Errorf("--output %s: %w", word, err)
	}
	return f, nil
}

func unknownFormat(text, words string) error {
	return fmt.Errorf("--output %q is not known%s (allowed: %s)", text, lb.DidYouMean(text, []string{"wide", "json", "yaml"}), words)
}

// columnsOfFile converts a file in kubectl's format, names on one line and paths on the next, to a
// list of columns.
func columnsOfFile(text string) (string, error) {
	names, paths, _ := strings.Cut(strings.TrimSpace(text), "\n")
	n, p := strings.Fields(names), strings.Fields(paths)
	if len(n) == 0 || len(n) != len(p) {
		return "", fmt.Errorf("its first line has %d column names, its second line %d paths", len(n), len(p))
	}
	for i := range n {
		n[i] += ":" + p[i]
	}
	return strings.Join(n, ","), nil
}

// parseColumns parses NAME:PATH,NAME:PATH.
func (f *format) parseColumns(text string) error {
	for column := range strings.SplitSeq(text, ",") {
		name, path, ok := strings.Cut(column, ":")
		if !ok || name == "" || path == "" {
			return fmt.Errorf("column %q is not NAME:PATH, such as VIP:.serviceArguments.externalIP", column)
		}
		p, err := parsePath(path)
		if err != nil {
			return err
		}
		f.headers, f.columns = append(f.headers, name), append(f.columns, p)
	}
	return nil
}

// parsePath parses a template, or a path without its braces, like kubectl.
func parsePath(text string) (*jsonpath.JSONPath, error) {
	if !strings.Contains(text, "{") {
		text = "{." + strings.TrimPrefix(strings.TrimPrefix(text, "$"), ".") + "}"
	}
	p := jsonpath.New("output").AllowMissingKeys(true)
	if err := p.Parse(text); err != nil {
		return nil, fmt.Errorf("%q: %w", text, err)
	}
	return p, nil
}

// asIs reports whether answers are printed as JSON or YAML.
func (f *format) asIs() bool { return f.word == "json" || f.word == "yaml" }

// execute applies the template to a JSON value.
func (f *format) execute(document any) (string, error) {
	var out bytes.Buffer
	if err := evaluated(func() error { return f.path.Execute(&out, document) }); err != nil {
		return "", Refused("--output jsonpath: %w", err)
	}
	return out.String() + "\n", nil
}

// evaluated converts a panic of the library to an error.
func evaluated(do func() error) (err error) {
	defer func() {
		if why := recover(); why != nil {
			err = fmt.Errorf("invalid template: %v", why)
		}
	}()
	return do()
}

// row returns the columns of an object.
func (f *format) row(object any) ([]string, error) {
	cells := make([]string, len(f.columns))
	for i, p := range f.columns {
		var found [][]reflect.Value
		err := evaluated(func() (err error) { found, err = p.FindResults(object); return err })
		if err != nil {
			return nil, Refused("--output custom-columns: %w", err)
		}
		var values []string
		for _, list := range found {
			for _, v := range list {
				values = append(values, cellOf(v.Interface()))
			}
		}
		if cells[i] = strings.Join(values, ","); len(values) == 0 {
			cells[i] = "<none>"
		}
	}
	return cells, nil
}

// addRows adds a row for each object.
func (f *format) addRows(t *Table, items []json.RawMessage) error {
	for _, item := range items {
		document, err := documentOf(item)
		if err != nil {
			return err
		}
		cells, err := f.row(document)
		if err != nil {
			return err
		}
		t.Add(cells...)
	}
	return nil
}

// cellOf returns a value of JSON in a cell.
func cellOf(v any) string {
	switch v := v.(type) {
	case string:
		return OneLine(v)
	case json.Number:
		return v.String()
	case nil:
		return "<none>"
	}
	return OneLine(string(Raw(v)))
}

// documentOf parses JSON without changing numbers.
func documentOf(data []byte) (v any, err error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		return nil, Refused("the server's answer is not JSON: %w", err)
	}
	return numbers(v), nil
}

// numbers converts whole numbers, for comparisons in paths.
func numbers(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name := range v {
			v[name] = numbers(v[name])
		}
	case []any:
		for i := range v {
			v[i] = numbers(v[i])
		}
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		if n, err := v.Float64(); err == nil {
			return n
		}
	}
	return v
}

// Show requests an object and prints it as a table, or unchanged.
func Show[T any](o *Options, ask func(*v1.Client, context.Context, ...v1.RequestEditorFn) (*http.Response, error), draw func(*T) *Table) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		client, err := o.Client()
		if err != nil {
			return err
		}
		body, err := o.Answer(ask(client, cmd.Context()))
		if err != nil {
			return err
		}
		if o.IsRaw() {
			return o.PrintRaw(body)
		}
		object := new(T)
		if err := Decode(body, object); err != nil {
			return err
		}
		return o.Print(draw(object).String())
	}
}
