package main

import (
	"iter"
	"net/netip"
)

type noWarmer struct{}

func (noWarmer) Set(iter.Seq[netip.Addr]) {}
