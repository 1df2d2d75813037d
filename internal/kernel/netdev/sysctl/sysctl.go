// Package sysctl reads and writes the kernel's settings of a network namespace, and keeps those
// that the data path needs.
package sysctl

import (
	"os"
	"strconv"
	"strings"

	"loxilb/internal/kernel/netdev/netlink"
)

// Settings are the settings of one namespace.
type Settings struct {
	ns *netlink.Namespace
}

// New returns the settings of a namespace.
func New(ns *netlink.Namespace) Settings { return Settings{ns: ns} }

// get reads a number. name is a path below /proc/sys/net, whose content depends on the namespace of
// the thread that opens it.
func (s Settings) get(name string) (int, error) {
	var value int
	err := s.ns.Do(func() error {
		b, err := os.ReadFile("/proc/sys/net/" + name)
		if err != nil {
			return err
		}
		value, err = strconv.Atoi(strings.TrimSpace(string(b)))
		return err
	})
	return value, err
}

func (s Settings) set(name string, value int) error {
	return s.ns.Do(func() error { return Write(name, value) })
}

// ARPIgnore returns the effective arp_ignore of a link: the larger of its own and that of all.
func (s Settings) ARPIgnore(link string) int {
	all, _ := s.get("ipv4/conf/all/arp_ignore")
	own, _ := s.get("ipv4/conf/" + link + "/arp_ignore")
	return max(all, own)
}

// ReversePathFilter returns the effective rp_filter of a link: the larger of its own and that of
// all.
func (s Settings) ReversePathFilter(link string) int {
	all, _ := s.get("ipv4/conf/all/rp_filter")
	own, _ := s.get("ipv4/conf/" + link + "/rp_filter")
	return max(all, own)
}
