package manifest

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"

	"loxilb/test/race"
)

// TestYAML checks that any text is unchanged after writing and reading it.
func TestYAML(t *testing.T) {
	t.Parallel()
	race.Skip(t)
	words := []string{
		"", "web", "yes", "no", "on", "true", "~", "null", "0x10", "0o17", "017", "1_000", "1:2", "1e3", ".inf", "- a", "a: b", "# x", " x ", "a\nb\n", "\t", "---", "...", "%x",
		"&a", "*a", "!x", "|", ">", "'", `"`, "ü", "\u2028", "\u0085", "\ufeff", "2001-01-01", "20.20.20.1", "2001:db8::1", "[", "{", "<<", "=", "1.2", "-1", "@x", "`", "\\", "\x7f", "a\r\nb", "😀",
	}
	r := rand.New(rand.NewPCG(1, 2))
	word := func() string { return words[r.IntN(len(words))] + []string{"", "", repeated(r, words)}[r.IntN(3)] }
	for range 3000 {
		spec, err := json.Marshal(map[string]any{"a": word(), "b": []any{word(), 1, 1.5, true, nil, map[string]any{"x" + word(): word()}}, "n": uint64(1)<<63 + 1})
		if err != nil {
			t.Fatal(err)
		}
		object := json.RawMessage(`{"apiVersion":"netlox/v1","kind":"Loadbalancer","spec":` + string(spec) + `}`)
		text, err := YAML([]json.RawMessage{object, object})
		if err != nil {
			t.Fatalf("%s: %v", object, err)
		}
		got, errs := Read("f", text, "")
		if len(errs) > 0 || len(got) != 2 {
			t.Fatalf("%s\nbecame\n%s\n%v", object, text, errs)
		}
		for _, o := range got {
			if !bytes.Equal(normal(t, o.Spec), normal(t, spec)) {
				t.Fatalf("%s\nbecame\n%s\nand\n%s", spec, text, o.Spec)
			}
		}
	}
	text, err := YAML([]json.RawMessage{json.RawMessage(`{"kind":"lb","spec":{"port":80,"name":"web","list":[{"ip":"10.0.0.1"}]}}`)})
	if want := "kind: lb\nspec:\n  port: 80\n  name: web\n  list:\n    - ip: 10.0.0.1\n"; err != nil || string(text) != want {
		t.Errorf("got %v\n%s, want %s", err, text, want)
	}
}

func repeated(r *rand.Rand, words []string) string {
	return strings.Repeat(words[r.IntN(len(words))], r.IntN(3))
}

func normal(t *testing.T, data []byte) []byte {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
