package main

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"loxilb/kube/internal/options"
)

// TestIdentity checks that a replica in a pod has the pod's name, and others have distinct names.
func TestIdentity(t *testing.T) {
	t.Setenv(podName, "controller-1")
	if got, err := identity(); got != "controller-1" || err != nil {
		t.Errorf("in a pod: %q, %v", got, err)
	}
	t.Setenv(podName, "")
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	first, err1 := identity()
	second, err2 := identity()
	if err1 != nil || err2 != nil || first == second || !strings.HasPrefix(first, host+"_") {
		t.Errorf("elsewhere: %q and %q, %v, %v", first, second, err1, err2)
	}
}

// TestLease checks that a timeout applies only to requests for the Lease: watches must not end.
func TestLease(t *testing.T) {
	t.Parallel()
	config := &rest.Config{Host: "https://192.0.2.1"}
	o := &options.Options{LeaderElect: true, Namespace: "kube-system", Zone: "llb"}
	if lease, err := newLease(config, o); err != nil || lease == nil {
		t.Fatalf("no Lease: %v, %v", lease, err)
	}
	if config.Timeout != 0 || config.UserAgent != "" {
		t.Errorf("requests in general have timeout %v and user agent %q", config.Timeout, config.UserAgent)
	}
	o.LeaderElect = false
	if lease, err := newLease(config, o); err != nil || lease != nil {
		t.Errorf("without election: %v, %v", lease, err)
	}
}

// TestLeaseName checks that each zone has a valid Lease of its own, and that valid zones keep
// theirs: the replicas of a former version hold it during an upgrade.
func TestLeaseName(t *testing.T) {
	t.Parallel()
	zones := map[string]string{}
	for _, zone := range []string{
		"llb", "aws-1", "eu.west", "LLB", "Llb", "west_1", "west-1", "west-", ".", "a..b", "zürich", "a=b,c", strings.Repeat("Z", 63),
	} {
		name := leaseName(zone)
		if errs := validation.IsDNS1123Subdomain(name); len(errs) > 0 {
			t.Errorf("zone %q: Lease %q is not valid: %q", zone, name, errs)
		}
		if other, taken := zones[name]; taken {
			t.Errorf("zones %q and %q share Lease %q", zone, other, name)
		}
		zones[name] = zone
	}
	for _, zone := range []string{"llb", "aws-1", "eu.west"} {
		if name := leaseName(zone); name != "kube-loxilb-"+zone {
			t.Errorf("zone %q has Lease %q", zone, name)
		}
	}
}

// heldLease is a Lease with a holder.
type heldLease struct {
	resourcelock.Interface
	holder string
}

func (l *heldLease) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	return &resourcelock.LeaderElectionRecord{HolderIdentity: l.holder}, nil, nil
}

// TestLeaseOfAnotherClass checks that a controller warns once about each holder of the Lease that
// has another class, but not about replicas and former versions.
func TestLeaseOfAnotherClass(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	held := &heldLease{}
	lease := &zoneLease{Interface: held, class: options.Class, log: slog.New(slog.NewTextHandler(&log, nil))}
	for _, tc := range []struct {
		holder string
		warns  bool
	}{
		{"", false},
		{"controller-1", false},
		{"controller-1@" + options.Class, false},
		{"internal-1@example.org/internal", true},
		{"internal-1@example.org/internal", false},
		{"internal-2@example.org/internal", true},
	} {
		held.holder = tc.holder
		log.Reset()
		if record, _, err := lease.Get(t.Context()); err != nil || record.HolderIdentity != tc.holder {
			t.Fatalf("got %+v, %v, want holder %q", record, err, tc.holder)
		}
		if got := strings.Contains(log.String(), "its own --zone") && strings.Contains(log.String(), "example.org/internal"); got != tc.warns {
			t.Errorf("holder %q: the log is %q, want a warning: %v", tc.holder, log.String(), tc.warns)
		}
	}
}
