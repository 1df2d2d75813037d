package main

import (
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// healthEvery is the interval of the daemon's health check, and startPatience the time for a start,
// with 10,000 services and a table to sweep.
const (
	healthEvery    = 10 * time.Second
	healthPatience = 5 * time.Second
	startPatience  = time.Minute
)

// product is what distinguishes the images.
type product struct {
	title, description, licences string

	programPaths []string          // without a leading slash; the first one is started
	links        map[string]string // targets, by the links' paths
	folders      map[string]int64  // modes of folders to mount at
	user         string
	health       *v1.HealthConfig
}

// productOf returns the product of a program.
func productOf(program string) product {
	if program == "kube-loxilb" {
		return product{
			title: "kube-loxilb", description: "loxilb's controller for Kubernetes", licences: "Apache-2.0",
			programPaths: []string{"usr/bin/kube-loxilb"},
			folders:      map[string]int64{"dev/": 0o755, "proc/": 0o555, "sys/": 0o555, "tmp/": 0o1777, "etc/ssl/certs/": 0o755},
			user:         "65532:65532",
		}
	}
	return product{
		title: "loxilb", description: "layer-4 load balancer in eBPF", licences: "Apache-2.0 AND (GPL-2.0-only OR BSD-2-Clause)",
		programPaths: []string{"usr/sbin/loxilb", "usr/bin/loxicmd"},
		links: map[string]string{ // where manifests of the existing loxilb have its programs
			"root/loxilb-io/loxilb/loxilb": "/usr/sbin/loxilb", "usr/local/sbin/loxicmd": "/usr/bin/loxicmd",
		},
		folders: map[string]int64{
			"dev/": 0o755, "proc/": 0o555, "sys/": 0o555, "tmp/": 0o1777, "run/loxilb/": 0o755,
			"etc/loxilb/probes/": 0o750, "etc/ssl/certs/": 0o755, "var/lib/loxilb/": 0o700, "var/log/loxilb/": 0o755,
		},
		user:   "0:0",
		health: &v1.HealthConfig{Test: []string{"CMD", "/usr/bin/loxicmd", "ready"}, Interval: healthEvery, Timeout: healthPatience, StartPeriod: startPatience},
	}
}
