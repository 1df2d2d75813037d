package compile

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"loxilb/internal/lb"
)

// TestDecisions compares decisions about prefixes with a golden file.
func TestDecisions(t *testing.T) {
	golden(t, "testdata/routes/decisions.txt", func(text string) string {
		stage, claims, _ := strings.Cut(text, ": ")
		return decisionText(Decide(parseClaims(t, claims), lb.Stage(stage))) + "\n"
	})
}

// parseClaims reads claims: "MASTER serving bgp-med=5; BACKUP down".
func parseClaims(t *testing.T, text string) (list []Claim) {
	t.Helper()
	for one := range strings.SplitSeq(text, "; ") {
		words := strings.Fields(one)
		s, err := lb.ParseService("20.20.20.1:80/tcp bgp=true endpoints=10.0.0.1:80 " + strings.Join(words[2:], " "))
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, Claim{
			Announcement: s.Announcement, Instance: s.Instance(), Role: lb.Role(words[0]), Applied: words[1] != "absent", Serving: words[1] == "serving", Unprobed: words[1] == "unprobed",
		})
	}
	return list
}

func decisionText(d Decision) string {
	if !d.Announced {
		return "withdrawn: " + d.Why
	}
	return fmt.Sprintf("MED %d, local preference %d, prepended %d, communities %v: %s", d.MED, d.LocalPref, d.Prepend, d.Communities, d.Why)
}

// TestDecisionOrder checks that the order of services changes neither a route nor its attributes.
func TestDecisionOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	roles := []lb.Role{lb.RoleMaster, lb.RoleBackup, lb.RoleUnknown, lb.RoleFault}
	for range 2000 {
		claims := make([]Claim, 1+r.IntN(5))
		for i := range claims {
			claims[i] = Claim{Role: roles[r.IntN(4)], Applied: r.IntN(4) > 0, Serving: r.IntN(2) > 0, Announcement: lb.Announcement{
				Announce: lb.Announce(r.IntN(2)), MED: r.Uint32N(3), LocalPref: r.Uint32N(300), Prepend: uint8(r.IntN(3)),
				Communities: []lb.Community{lb.Community(r.IntN(4))},
			}}
		}
		stage := []lb.Stage{lb.InService, lb.Draining, lb.Drained}[r.IntN(3)]
		want := Decide(claims, stage)
		r.Shuffle(len(claims), func(i, j int) { claims[i], claims[j] = claims[j], claims[i] })
		got := Decide(claims, stage)
		if got.Announced != want.Announced || !cmp.Equal(got.Attributes, want.Attributes) {
			t.Fatalf("%s: %+v\nin another order: %+v\nof %+v", stage, want, got, claims)
		}
		if !slices.IsSorted(got.Communities) {
			t.Fatalf("communities %v are not sorted", got.Communities)
		}
	}
}
