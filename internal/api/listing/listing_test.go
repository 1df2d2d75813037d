package listing

import (
	"slices"
	"strings"
	"testing"
	"time"
)

type inner struct {
	Name  string `json:"name"`
	State string `json:"state"`
}

type object struct {
	Name  string    `json:"name"`
	Count *int      `json:"count,omitempty"`
	On    bool      `json:"on"`
	Since time.Time `json:"since,omitzero"`
	Args  inner     `json:"args"`
	Parts []inner   `json:"parts"`
	Tags  []string  `json:"tags"`
	Deep  *inner    `json:"deep,omitempty"`
}

func objects() []object {
	n := func(i int) *int { return &i }
	return []object{
		{Name: "eth2", Count: n(9), Parts: []inner{{State: "up"}, {State: "down"}}, Tags: []string{"a"}},
		{Name: "eth10", Count: n(10), On: true, Args: inner{Name: "x"}},
		{Name: "eth1", Since: time.Unix(0, 0).UTC(), Deep: &inner{State: "up"}},
	}
}

func list(fields *Fields) *List[*object] {
	all := objects()
	return &List[*object]{
		Rows: func(yield func(*object) bool) {
			for i := range all {
				if !yield(&all[i]) {
					return
				}
			}
		},
		Key:        func(o *object) string { return o.Name },
		Order:      func(a, b string) int { return at(all, a) - at(all, b) },
		OtherNames: func(o *object) []string { return []string{o.Args.Name} },
		Values:     func(o *object, path string) []string { return fields.Values(o, path) },
	}
}

func at(all []object, name string) int {
	return slices.IndexFunc(all, func(o object) bool { return o.Name == name })
}

// TestSelect checks that objects can be selected by the contents of their fields, at any depth.
func TestSelect(t *testing.T) {
	t.Parallel()
	fields := FieldsOf[object](map[string]string{"n": "name"})
	for text, want := range map[string]string{
		"":                           "eth2 eth10 eth1",
		"name=eth2":                  "eth2",
		"n in (eth1, eth2)":          "eth2 eth1",
		"name notin (eth1,eth2)":     "eth10",
		"count!=10":                  "eth2 eth1",
		"parts.state=down":           "eth2",
		".parts[*].state=down":       "",
		"deep.state==up,name!=eth2":  "eth1",
		"on":                         "eth10",
		"!on":                        "eth2 eth1",
		"on=false":                   "eth2 eth1",
		"count=0":                    "eth1",
		"tags=a":                     "eth2",
		"since=1970-01-01T00:00:00Z": "eth1",
		"since":                      "eth1",
		"args.name=x":                "eth10",
	} {
		where, err := ParseSelector(text)
		for i := range where {
			if path, e := fields.Find(where[i].Field); e == nil {
				where[i].Field = path
			} else if want != "" {
				t.Errorf("%s: got %v, want no want", text, e)
			}
		}
		if got := page(list(fields), &Query{Where: where}); err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", text, got, err, want)
		}
		if again, err := ParseSelector(where.String()); err != nil || again.String() != where.String() {
			t.Errorf("%s: %s is read as %s, %v", text, where, again, err)
		}
	}
	for _, text := range []string{"=", "a in b)", "a in (b", "in (a)", "a b=c"} {
		if _, err := ParseSelector(text); err == nil || !strings.Contains(err.Error(), "is not valid") {
			t.Errorf("%s: got %v, want an error with %q", text, err, "is not valid")
		}
	}
	for name, says := range map[string]string{"state": `field "state" is ambiguous: give one of parts.state, deep.state`, "nope": "there are Args"} {
		_, err := fields.Find(name)
		if err == nil || !strings.Contains(strings.ToLower(err.Error()), strings.ToLower(says[:min(len(says), 12)])) {
			t.Errorf("%s: got %v, want an error like %q", name, err, says)
		}
	}
}

func page(l *List[*object], q *Query) string {
	var names []string
	l.Page(q, func(o *object) bool {
		names = append(names, o.Name)
		return true
	})
	return strings.Join(names, " ")
}

// TestPages checks that pages show each object once, in any order, even if an object is deleted
// between two pages.
func TestPages(t *testing.T) {
	t.Parallel()
	fields := FieldsOf[object](nil)
	for sort, want := range map[string]string{"": "eth2 eth10 eth1", "name": "eth1 eth2 eth10", "-name": "eth10 eth2 eth1", "count": "eth1 eth2 eth10", "on": "eth2 eth1 eth10"} {
		for limit := range 5 {
			q := &Query{Sort: sort, Limit: limit}
			var got []string
			for range 4 {
				if err := q.Check(); err != nil {
					t.Fatal(err)
				}
				q.Continue = list(fields).Page(q, func(o *object) bool {
					got = append(got, o.Name)
					return true
				})
				if q.Continue == "" {
					break
				}
			}
			if text := strings.Join(got, " "); text != want {
				t.Errorf("by %q, %d a page: %s, want %s", sort, limit, text, want)
			}
		}
	}
	if got := page(list(fields), &Query{Names: []string{"x", "eth1"}}); got != "eth10 eth1" {
		t.Errorf(`got %v, want "eth10 eth1"`, got)
	}
	if err := (&Query{Continue: "x"}).Check(); err == nil || !strings.Contains(err.Error(), "is not the end of a page") {
		t.Errorf(`got %v, want an error, "is not the end of a page" in the error`, err)
	}
	for _, pair := range [][2]string{{"9", "10"}, {"10.0.0.9", "10.0.0.10"}, {"10.0.0.1:9", "10.0.0.1:80"}, {"", "a"}, {"a09", "a9x"}, {"::2", "::10"}, {"a", "b"}} {
		if Compare(pair[0], pair[1]) >= 0 || Compare(pair[1], pair[0]) <= 0 {
			t.Errorf("%s is not before %s", pair[0], pair[1])
		}
	}
}

// TestOrder checks that the order is strict for any mix of addresses and other words: otherwise
// pages would leave rows out.
func TestOrder(t *testing.T) {
	t.Parallel()
	words := []string{"::2:0", "5x", "1::", "10.0.0.1", "9.9.9.9", "9", "10", "a", "fe80::1", "", "01", "eth10", "eth2", "2001:db8::1", "10.0.0.1:80"}
	for _, a := range words {
		for _, b := range words {
			if Compare(a, b) != -Compare(b, a) {
				t.Errorf("neither of %q and %q comes first", a, b)
			}
			for _, c := range words {
				if Compare(a, b) < 0 && Compare(b, c) < 0 && Compare(a, c) >= 0 {
					t.Errorf("%q is before %q, that before %q, and that before the first one", a, b, c)
				}
			}
		}
	}
}

// TestSelectorIsBounded checks that the number of requirements is bounded, as each is compared with
// each row.
func TestSelectorIsBounded(t *testing.T) {
	t.Parallel()
	for text, ok := range map[string]bool{
		strings.Repeat("name,", maxRequirements): true, strings.Repeat("name,", maxRequirements+1): false,
		"name in (" + strings.Repeat("x,", maxValues-1) + "x)": true, "name in (" + strings.Repeat("x,", maxValues) + "x)": false,
	} {
		if _, err := ParseSelector(text); (err == nil) != ok {
			t.Errorf("%.40s: got %v, want an error: %t", text, err, !ok)
		}
	}
}

// TestNames checks that any name is found by the complete name, and not by a part of it.
func TestNames(t *testing.T) {
	t.Parallel()
	names := []string{"a,b", "a", "b c", `say "hi"`, `"`, "x)", "(", "a=b", "in (c)", "ü,ö", "!", " spaced ", "a, b"}
	if got, err := SplitNames(JoinNames(names)); err != nil || !slices.Equal(got, names) {
		t.Errorf("got %q, %v, want no error, %q", got, err, names)
	}
	for _, name := range names {
		for _, r := range []Requirement{
			{Field: "name", Values: []string{name}},
			{Field: "name", Values: []string{"z", name}, Not: true},
			{Field: "name", Values: []string{name}, Prefix: true},
		} {
			got, err := ParseSelector(Selector{r, {Field: "on"}}.String())
			if err != nil || len(got) != 2 || !slices.Equal(got[0].Values, r.Values) || got[0].Not != r.Not || got[0].Prefix != r.Prefix {
				t.Errorf("%s: got %+v, %v, want no error, 2 elements, got[0].Values == r.Values, "+
					"got[0].Not == r.Not, got[0].Prefix == r.Prefix",
					r, got, err)
			}
		}
	}
	if got, err := ParseSelector(`name="a,b",state!="(x)"`); err != nil || got.String() != `name in ("a,b"),state notin ("(x)")` {
		t.Errorf("got %v, %v, want no error, got == `name in (\"a,b\"),state notin (\"(x)\")`", got, err)
	}
	for _, text := range []string{`name="a`, `name in ("a,b)`, `name="a"b`} {
		if got, err := ParseSelector(text); err == nil {
			t.Errorf("%s: got %v, want an error", text, got)
		}
	}
}

// TestQuotesWithin checks that quotes are special at the beginning of a value only.
func TestQuotesWithin(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		`a"b,c"d`:   {`a"b`, `c"d`},
		"`a,b`":     {"`a", "b`"},
		`"a,b",c`:   {`"a,b"`, "c"},
		`x="a,b",c`: {`x="a,b"`, "c"},
	} {
		if got := split(text); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// TestResolveSort checks that the name of a field becomes its path, in both directions, and that no
// field is no error.
func TestResolveSort(t *testing.T) {
	t.Parallel()
	fields := FieldsOf[object](nil)
	for sort, want := range map[string]string{"": "", "Count": "count", "-args.STATE": "-args.state"} {
		q := &Query{Sort: sort}
		if err := q.ResolveSort(fields); err != nil || q.Sort != want {
			t.Errorf("%q: got %q, %v, want sort order %q", sort, q.Sort, err, want)
		}
	}
	if err := (&Query{Sort: "nosuch"}).ResolveSort(fields); err == nil {
		t.Error("an unknown field is accepted")
	}
}
