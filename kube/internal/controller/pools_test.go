package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	ctrl "sigs.k8s.io/controller-runtime"

	"loxilb/kube/internal/address"
)

// TestLoxiURLPools checks that pools of LoxiURLs which cannot be used are logged, once, and others
// are used: a LoxiURL has no status.
func TestLoxiURLPools(t *testing.T) {
	t.Parallel()
	var said []string
	log := funcr.New(func(_, text string) { said = append(said, text) }, funcr.Options{})
	urls := []loxiURL{
		{"good", kindCIDRPool, "defaultPool=20.20.20.0/30"},
		{"typo", kindCIDRPool, "blue=20.20.21.0/33"},
		{"twice", kindCIDRPool, "red=20.20.20.1-20.20.20.9"},
		{"balancer", kindDefault, "http://192.0.2.1:11111"},
	}
	p := Pools{
		Addresses: address.New(), LoxiURLs: func(context.Context) ([]loxiURL, error) { return urls, nil },
		Sharing: address.ShareNever, Changed: func() {},
	}
	for range 2 {
		if err := p.Load(ctrl.LoggerInto(t.Context(), log)); err != nil {
			t.Fatal(err)
		}
	}
	text := fmt.Sprint(said)
	if len(said) != 2 || !strings.Contains(text, "LoxiURL typo: pool \\\"blue\\\"") || !strings.Contains(text, "overlaps 20.20.20.1-20.20.20.2 of pool \\\"defaultPool\\\"") {
		t.Errorf("the log has %d lines: %s", len(said), text)
	}
	if got, _, err := p.Addresses.Allocate(&address.Request{Service: "d/s", Slots: []address.Slot{{}}}, nil); err != nil || got[0].String() != "20.20.20.1" {
		t.Errorf("got address %v: %v", got, err)
	}
}

// TestLoxiURLOrder checks that of LoxiURLs with the same addresses one is used, in whatever order
// the cache returns them: otherwise each look would change the pools of all Services.
func TestLoxiURLOrder(t *testing.T) {
	t.Parallel()
	urls := []loxiURL{{"a", kindCIDRPool, "red=20.20.20.1-20.20.20.9"}, {"b", kindCIDRPool, "blue=20.20.20.9-20.20.20.20"}}
	changes := 0
	p := Pools{
		Addresses: address.New(), LoxiURLs: func(context.Context) ([]loxiURL, error) { return slices.Clone(urls), nil },
		Changed: func() { changes++ },
	}
	for range 3 {
		if err := p.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
		slices.Reverse(urls)
	}
	if changes != 1 || p.last[0].Name != "red" {
		t.Errorf("pools have changed %d times, and %q is the first", changes, p.last[0].Name)
	}
}
