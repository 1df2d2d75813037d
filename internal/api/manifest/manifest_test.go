package manifest

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"loxilb/internal/kinds"
	"loxilb/test/race"
)

func read(file, assume string) string {
	objects, errs := Read("f", []byte(file), assume)
	var b strings.Builder
	for _, o := range objects {
		b.WriteString(o.Kind + " " + string(o.Metadata) + " " + string(o.Spec) + "\n")
	}
	if len(errs) > 0 {
		b.WriteString(errs.Error() + "\n")
	}
	return b.String()
}

func TestRead(t *testing.T) {
	t.Parallel()
	const head = "apiVersion: netlox/v1\nkind: "
	for file, want := range map[string]string{
		head + "lb\nspec: {a: 0x10, b: 1_000, c: 010, d: 1.5, e: ~, f: yes, g: 2001-01-01, h: 'x', i: true, j: 1:2, k: \"\\u00e9\"}": "Loadbalancer  " +
			`{"a":16,"b":1000,"c":8,"d":1.5,"e":null,"f":"yes","g":"2001-01-01","h":"x","i":true,"j":"1:2","k":"é"}` + "\n",
		head + "fw\nmetadata: {name: x}\nspec: {}\n--- \n" + head + "VLAN-member\nmetadata:\n  vid: 5\nspec: {dev: eth0}\n...\n" + head +
			"bfd\nspec: {}\n": "Firewall {\"name\":\"x\"} {}\n" +
			"VlanMember {\"vid\":5} {\"dev\":\"eth0\"}\nBFD  {}\n",
		"base: &b {x: 1, y: 2}\n" + head +
			"lb\nspec: {}": "f:1:7: base cannot be combined with spec: an object has apiVersion, kind, metadata and spec\n",
		head + "lb\nspec: {a: &b {x: 1, y: [1]}, c: {<<: *b, x: 3}, d: *b}":                        `Loadbalancer  {"a":{"x":1,"y":[1]},"c":{"x":3,"y":[1]},"d":{"x":1,"y":[1]}}` + "\n",
		head + "lb\nspec: {a: .nan, b: .inf}":                                                      "f:3:11: .nan is not a JSON number\nf:3:20: .inf is not a JSON number\n",
		head + "lb\nspec: {[1]: 2}":                                                                "f:3:8: the name of a property is not a string\n",
		head + "vlan\nmetadata: {vid: 5}":                                                          "Vlan {\"vid\":5} {}\n",
		head + "vlan\nmetadata: 5":                                                                 "f:1:1: spec is missing: the fields that POST takes for a Vlan\n",
		head + "vxlan\nmetadata: {vxlanID: 5}":                                                     "f:1:1: spec is missing: the fields that POST takes for a Vxlan\n",
		`{"fwAttr":[{"a":1}],"lbAttr":null,"timestamp":1}`:                                         "Firewall  {\"a\":1}\n",
		`{"kind":"List","items":[{"apiVersion":"netlox/v1","kind":"ep","spec":{"hostName":"1"}}]}`: "Endpoint  {\"hostName\":\"1\"}\n",
		`{"Attr":[{"remoteIp":"1"}]}`:                                                              "BFD  {\"remoteIp\":\"1\"}\n",
		`{"lbAttr":[{"a":1}]} {"lbAttr":[{"b":1}]}`:                                                "Loadbalancer  {\"a\":1}\nLoadbalancer  {\"b\":1}\n",
		"{lbAttr: [{a: 1}]}":                                                                       "Loadbalancer  {\"a\":1}\n",
		"\ufeff{\"lbAttr\":[1]}":                                                                   "f:1:12: a member of lbAttr is not an object\n",
		"%YAML 1.2\n---\n" + head + "lb\nspec: {}":                                                 "Loadbalancer  {}\n",
		"---\nhostName: 10.0.0.1\n---\nruleArguments: {}\n":                                        "Endpoint  {\"hostName\":\"10.0.0.1\"}\nFirewall  {\"ruleArguments\":{}}\n",
		head + "lb\nspec:\n\t- a":                                                                  "f:4:2: it is not YAML: found character that cannot start any token\n",
	} {
		if diff := cmp.Diff(want, read(file, "")); diff != "" {
			t.Errorf("%s\n%s", file, diff)
		}
	}
	if got := read(`{"Attr":[{"x":1}]}`, kinds.BFDDocument); got != "BFD  {\"x\":1}\n" {
		t.Errorf(`got %v, want "BFD  {\"x\":1}\n"`, got)
	}
	if got := read(`{"x":1}`, kinds.SessionDocument); got != "Session  {\"x\":1}\n" {
		t.Errorf(`got %v, want "Session  {\"x\":1}\n"`, got)
	}
}

// TestAliasBomb checks that nested aliases cannot exceed the limit on a request.
func TestAliasBomb(t *testing.T) {
	t.Parallel()
	race.Skip(t)
	var b strings.Builder
	b.WriteString("apiVersion: netlox/v1\nkind: lb\nspec:\n  a0: &a0 [" + strings.Repeat(strings.Repeat("x", 100)+",", 99) + "x]\n")
	for i := range 9 {
		b.WriteString("  a" + string(rune('1'+i)) + ": &a" + string(rune('1'+i)) + " [" + strings.Repeat("*a"+string(rune('0'+i))+",", 99) + "1]\n")
	}
	if got := read(b.String(), ""); !strings.Contains(got, "it is too large, or too deep") && !strings.Contains(got, "excessive aliasing") {
		t.Errorf(`got %v, want "it is too large, or too deep" in got or "excessive aliasing" in got`,
			got[:min(len(got), 200)])
	}
}

// FuzzRead checks that any file gives objects in JSON, or errors with positions.
func FuzzRead(f *testing.F) {
	f.Add("apiVersion: netlox/v1\nkind: lb\nspec: {a: &x [1], b: *x}\n---\n- {hostName: 1}\n")
	f.Add(`{"lbAttr":[{"a":[1,{"b":null}]}]}`)
	f.Add("lbAttr: [~, 1, {}]\n...\n--- {}")
	f.Fuzz(func(t *testing.T, file string) {
		objects, errs := Read("f", []byte(file), "")
		for _, e := range errs {
			if e.Line < 1 || e.Column < 1 || e.Text == "" {
				t.Fatalf("%q: got %v, want e.Line >= 1, e.Column >= 1, e.Text not empty", file, e)
			}
		}
		for _, o := range objects {
			if !json.Valid(o.Spec) || o.Metadata != nil && !json.Valid(o.Metadata) {
				t.Fatalf("%q: got %s %s, want valid JSON in o.Spec, o.Metadata == nil or valid JSON in o.Metadata",
					file, o.Metadata, o.Spec)
			}
			for _, field := range []string{"", "a.b[0].c", "metadata.x", "[3].[", "a[99999999999999999999]"} {
				if p := o.Locate(field); p.Line < 1 || p.Column < 1 {
					t.Fatalf("%q: got %s: %v, want p.Line >= 1, p.Column >= 1", file, field, p)
				}
			}
		}
	})
}

// TestBounds checks that input that would need gigabytes is refused before it is read, that at most
// a thousand errors are reported, and that long texts are truncated.
func TestBounds(t *testing.T) {
	t.Parallel()
	race.Skip(t)
	const document = "apiVersion: netlox/v1\nkind: lb\nspec: {a: "
	anchors := document + "&a [" + strings.Repeat("x,", 1000) + "x], b: &b [" + strings.Repeat("*a,", 1000) + "*a]}\n"
	for name, tc := range map[string]struct{ text, want string }{
		"flow":      {document + "[" + strings.Repeat("a,", maxNodes) + "]}", "more than the 4194304 that YAML may have: split it, or write it as JSON"},
		"brackets":  {document + strings.Repeat("[", maxNodes), "more than the 4194304 that YAML may have"},
		"JSON":      {"[" + strings.Repeat("{},", maxValues/2) + "{}]", "x:1:1: it has about 8388610 values, and at most 8388608 are allowed: split it"},
		"aliases":   {strings.Repeat("---\n"+anchors, 40), "it is too large, or too deep"},
		"documents": {strings.Repeat("--- a\n", 10_000), "only the first 1000 are listed"},
		"not YAML":  {strings.Repeat("---\n[\n", 10_000), "only the first 1000 are listed"},
		"list":      {"[" + strings.Repeat("1,", 10_000) + "1]", "only the first 1000 are listed"},
		"long":      {"kind: " + strings.Repeat("x", 1<<20) + "\napiVersion: netlox/v1\n", "xxx..."},
	} {
		objects, errs := Read("x", []byte(tc.text), "")
		text := errs.Error()
		if len(objects) > 0 || len(errs) > maxErrors || !strings.Contains(text, tc.want) || len(text) > maxErrors*(maxText+100) {
			t.Errorf("%s: %d objects, %d errors: %.300s", name, len(objects), len(errs), text)
		}
	}
}

// TestDuplicateKeys checks that a duplicate key, in any case and at any depth, is an error, since
// one of the two values would be lost. A byte order mark before a later document is ignored.
func TestDuplicateKeys(t *testing.T) {
	t.Parallel()
	const document = "apiVersion: netlox/v1\nkind: lb\nspec: {a: 1}\n"
	for text, want := range map[string]string{
		document + "spec: {b: 2}\n":                             "f:1:1: spec is given twice",
		document + "Kind: fw\n":                                 "f:1:1: Kind is given twice",
		document + "metadata: {}\nmetadata: {}\n":               "f:1:1: metadata is given twice",
		"apiVersion: netlox/v1\nkind: lb\nspec: {a: 1, a: 2}\n": "f:3:14: a is given twice",
		`{"apiVersion":"netlox/v1","kind":"lb","spec":{"a":[{"b":1},{"b":1,"c":{"d":[]},"b":2}]}}`: "f:1:83: b is given twice",
		`{"apiVersion":"netlox/v1","kind":"lb","spec":{},"spec":{}}`:                               "f:1:1: spec is given twice",
		`{"lbAttr":[{"endpoints":[],"endpoints":[]}]}`:                                             "f:1:39: endpoints is given twice",
		"apiVersion: netlox/v1\nkind: lb\nspec: {endpointIP: a, EndpointIP: b}\n":                  "f:3:23: EndpointIP is given twice",
		`{"apiVersion":"netlox/v1","kind":"lb","spec":{"endpointIP":"a","EndpointIP":"b"}}`:        "f:1:76: EndpointIP is given twice",
		`{"apiVersion":"netlox/v1","kind":"lb","spec":{"port":1,"\u017fel":2,"sel":3}}`:            "f:1:74: sel is given twice",
		"apiVersion: netlox/v1\nkind: lb\nspec: {a: &x {Port: 1}, b: {<<: *x, port: 2}}\n":         "",
		`{"apiVersion":"netlox/v1","kind":"lb","spec":{"a":"b","b":"a","c":["a","a"]}}`:            "",
		"\ufeff" + document + "---\n\ufeff" + document + "--- \n\n\ufeff" + document:               "",
	} {
		objects, errs := Read("f", []byte(text), "")
		if got := errs.Error(); got != want || (want == "") != (len(objects) > 0) {
			t.Errorf("%s\n%s, want %s", text, got, want)
		}
	}
}
