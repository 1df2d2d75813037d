// Package bpf holds the data path's programs and the Go side of bpf/abi.h. All but this file is
// generated, by bpf2go, from the C sources in the top folder bpf/.
package bpf

import _ "loxilb/internal/kernel/datapath/bpf/machine" // fails to build on unsupported machines

//go:generate ../../../../tools/bpf Tc ../../../../bpf/tc.bpf.c -types tc.types
//go:generate ../../../../tools/bpf Sweep ../../../../bpf/sweep.bpf.c
//go:generate ../../../../tools/bpf Cluster ../../../../bpf/cluster.bpf.c
//go:generate ../../../../tools/bpf Xdp ../../../../bpf/xdp.bpf.c -types xdp.types
//go:generate ../../../../tools/bpf TcTrace ../../../../bpf/tc.bpf.c -DTRACING=1
//go:generate ../../../../tools/bpf XdpTrace ../../../../bpf/xdp.bpf.c -DTRACING=1
//go:generate ../../../../tools/bpf TcSCTP ../../../../bpf/tc.bpf.c -DTRACING=1 -DONLY_SCTP=1
//go:generate ../../../../tools/bpf TcQUIC ../../../../bpf/tc.bpf.c -DTRACING=1 -DONLY_QUIC=1
//go:generate ../../../../tools/bpf TcProxy ../../../../bpf/tc.bpf.c -DTRACING=1 -DONLY_PROXY=1
//go:generate ../../../../tools/bpf Sock ../../../../bpf/sock.bpf.c -types sock.types
//go:generate ../../../../tools/bpf Decap ../../../../bpf/decap.bpf.c -types decap.types
//go:generate ../../../../tools/bpf Gtp ../../../../bpf/gtp.bpf.c -types gtp.types
//go:generate ../../../../tools/bpf Probe ../../../../bpf/probe.bpf.c -types probe.types
