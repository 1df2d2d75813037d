package v1

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestProperties(t *testing.T) {
	t.Parallel()
	p := PropertiesOf[LoadbalanceEntry]()
	var e LoadbalanceEntry
	for name, value := range map[string]any{
		"serviceArguments.mode": "fullnat", "serviceArguments.sel": "2", "serviceArguments.port": 80, "serviceArguments.bgp": true,
		"serviceArguments.snatIPs": []string{"10.0.0.1"}, "allowedSources": []string{"10.0.0.0/8", "11.0.0.0/8"}, "secondaryIPs": []string{"10.0.0.2"},
	} {
		if _, given := p.Get(&e, name); given {
			t.Errorf("%s is given before it is set", name)
		}
		p.Set(&e, name, value)
		got, given := p.Get(&e, name)
		if diff := cmp.Diff(value, got); diff != "" || !given {
			t.Errorf("%s: given %t\n%s", name, given, diff)
		}
	}
	p.Set(&e, "serviceArguments.sel", 7)
	want := LoadbalanceEntry{
		ServiceArguments: ServiceArguments{Mode: "fullnat", Sel: "7", Port: 80, Bgp: true, SnatIPs: []string{"10.0.0.1"}},
		AllowedSources:   []AllowedSource{{"10.0.0.0/8"}, {"11.0.0.0/8"}}, SecondaryIPs: []SecondaryIP{{"10.0.0.2"}},
	}
	if diff := cmp.Diff(want, e); diff != "" {
		t.Errorf("the result differs (-want +got):\n%s", diff)
	}
	q, ep := PropertiesOf[Endpoint](), Endpoint{}
	if v, given := q.Get(&ep, "weight"); v != nil || given {
		t.Errorf("an unset weight is %v", v)
	}
	q.Set(&ep, "weight", 0)
	if v, given := q.Get(&ep, "weight"); v != 0 || !given {
		t.Errorf("a weight of 0 is %v, given %t", v, given)
	}
}
