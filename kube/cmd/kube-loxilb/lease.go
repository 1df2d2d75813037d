package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"loxilb/kube/internal/options"
)

// podName is the environment variable with the pod's name, which the chart sets.
const podName = "POD_NAME"

// newLease returns the Lease of the leader, or nil with --leader-elect=false.
func newLease(config *rest.Config, o *options.Options) (resourcelock.Interface, error) {
	if !o.LeaderElect {
		return nil, nil
	}
	id, err := identity()
	if err != nil {
		return nil, fmt.Errorf("--leader-elect: %w", err)
	}
	config = rest.AddUserAgent(rest.CopyConfig(config), "leader-election")
	config.Timeout = renewDeadline / 2 // so one request that hangs does not cost the Lease
	leases, err := coordinationv1.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	name := leaseName(o.Zone)
	lease, err := resourcelock.New(resourcelock.LeasesResourceLock, o.Namespace, name, nil, leases,
		resourcelock.ResourceLockConfig{Identity: id + classSeparator + o.Class})
	if err != nil {
		return nil, err
	}
	return &zoneLease{Interface: lease, class: o.Class, log: slog.New(logHandler).With("lease", name, "zone", o.Zone)}, nil
}

// leaseName returns the name of a zone's Lease. For a zone that Kubernetes does not allow in names,
// such as "West_1", it derives a name that no other zone has.
func leaseName(zone string) string {
	const prefix = "kube-loxilb-"
	if len(validation.IsDNS1123Subdomain(prefix+zone)) == 0 {
		return prefix + zone
	}
	allowed := strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || '0' <= r && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(zone))
	sum := sha256.Sum256([]byte(zone))
	return fmt.Sprintf("%s%s-%x", prefix, allowed, sum[:4])
}

// classSeparator separates the name and the class of a holder. Neither contains it.
const classSeparator = "@"

// zoneLease is the Lease of a zone. Controllers of different classes share it: names and roles on
// balancers contain the zone, so two controllers would delete each other's services. The holder has
// its class in its identity, so a controller of another class can log why it waits.
type zoneLease struct {
	resourcelock.Interface
	class  string
	log    *slog.Logger
	warned string // last holder of another class
}

// Get returns the record of the Lease, and warns once about each holder with another class. Holders
// of former versions have no class in their identities.
func (l *zoneLease) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if err != nil {
		return record, raw, err
	}
	holder, class, named := strings.Cut(record.HolderIdentity, classSeparator)
	if named && class != l.class && holder != l.warned {
		l.warned = holder
		l.log.Warn("a controller of another class works in this zone: give each controller its own --zone",
			"class", l.class, "holder", holder, "holder_class", class)
	}
	return record, raw, nil
}

// identity returns the name of this replica in the Lease: that of its pod, where only one replica
// runs at a time, so a restarted container gets its Lease back at once. Elsewhere the name is
// random, since several replicas may share a host.
func identity() (string, error) {
	if name := os.Getenv(podName); name != "" {
		return name, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", err
	}
	if host == "" {
		return "", errors.New("this host has no name")
	}
	return host + "_" + string(uuid.NewUUID()), nil
}
