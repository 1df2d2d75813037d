package config

import (
	"fmt"
	"net"
	"path/filepath"
	"strconv"
)

// Limits of flow logs.
const (
	maxFlowLogMB    = 1 << 20
	maxFlowLogFiles = 1000
	maxFlowLogRate  = 1_000_000
)

func (f *flags) checkFlowLog() (FlowLog, error) {
	l := f.flowLog
	l.Size = int64(f.flowLogMB) * 1_000_000
	switch {
	case l.File != "" && l.File != "-" && !filepath.IsAbs(l.File):
		return l, &Error{"--flow-log", l.File, "is not an absolute path, or - for standard output"}
	case f.flowLogMB < 1 || f.flowLogMB > maxFlowLogMB:
		return l, &Error{"--flow-log-size", strconv.Itoa(f.flowLogMB), fmt.Sprintf("is out of range (allowed: 1 to %d megabytes)", maxFlowLogMB)}
	case l.Files < 0 || l.Files > maxFlowLogFiles:
		return l, &Error{"--flow-log-files", strconv.Itoa(l.Files), fmt.Sprintf("is out of range (allowed: 0 to %d)", maxFlowLogFiles)}
	case l.Rate < 1 || l.Rate > maxFlowLogRate:
		return l, &Error{"--flow-log-rate", strconv.Itoa(l.Rate), fmt.Sprintf("is out of range (allowed: 1 to %d events per second)", maxFlowLogRate)}
	}
	if !l.Wanted() {
		return FlowLog{}, nil
	}
	if l.IPFIX == "" {
		return l, nil
	}
	host, port, err := net.SplitHostPort(l.IPFIX)
	if n, failed := strconv.ParseUint(port, 10, 16); err != nil || failed != nil || n == 0 || host == "" {
		return l, &Error{"--ipfix", l.IPFIX, "is not HOST:PORT (IPv6 in brackets)"}
	}
	return l, nil
}
