package main

import (
	"log/slog"
	"os"
	"time"

	"loxilb/internal/control/health/probe"
	"loxilb/internal/telemetry/metrics"
)

// certificates lists the certificates of the API and of these probes. A file that has changed is
// read again.
func (p *daemon) certificates(probes []metrics.CertificateFile) (list []metrics.Certificate) {
	add := func(of metrics.CertificateFile, end time.Time, err error) {
		if err == nil { // else the log has it, and a series would be a lie
			list = append(list, metrics.Certificate{CertificateFile: of, End: end})
		}
	}
	if c := p.config.API; !c.Disabled && c.TLS.IsValid() {
		if info, err := os.Stat(c.CertFile); err == nil {
			end, err := p.expiries.Of(c.CertFile, info.ModTime(), info.Size(), func() ([]byte, error) { return os.ReadFile(c.CertFile) })
			add(metrics.CertificateFile{Use: "api", File: c.CertFile}, end, err)
		}
	}
	files := probe.Files{Dir: p.config.ProbeFiles, Log: slog.New(slog.DiscardHandler)}
	for _, of := range probes {
		end, err := files.Expiry(of.File, &p.expiries)
		add(of, end, err)
	}
	return list
}
