package main

import (
	"log/slog"
	"os"
	"time"

	"loxilb/internal/expiry"
	"loxilb/internal/health/probe"
	"loxilb/internal/lb"
	"loxilb/internal/metrics"
)

// maxCertificates bounds how many files of certificates a scrape reads: users of the API name those of probes.
const maxCertificates = 100

// certificates are those that the API and probes use, as their files have them now: they are read again when they change.
func (p *daemon) certificates(probed func(func(*lb.EndpointHealth) bool)) (list []metrics.Certificate) {
	add := func(use, file string, end time.Time, err error) {
		if err == nil { // else the log has it, and a series would be a lie
			list = append(list, metrics.Certificate{Use: use, File: file, End: end})
		}
	}
	if c := p.config.API; !c.Disabled && c.TLS.IsValid() {
		text, err := os.ReadFile(c.CertFile)
		if err == nil {
			end, err := expiry.Of(text)
			add("api", c.CertFile, end, err)
		}
	}
	files, seen := probe.Files{Dir: p.config.ProbeFiles, Log: slog.New(slog.DiscardHandler)}, map[[2]string]bool{}
	for e := range probed {
		for use, file := range map[string]string{"probe-ca": e.Probe.CA, "probe": e.Probe.Certificate} {
			of := [2]string{use, file}
			if file == "" || seen[of] || len(seen) == maxCertificates {
				continue
			}
			seen[of] = true
			end, err := files.Expiry(file)
			add(use, file, end, err)
		}
	}
	return list
}
