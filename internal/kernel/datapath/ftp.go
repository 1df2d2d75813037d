package datapath

import (
	"fmt"
	"time"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/loader"
	"loxilb/internal/kernel/datapath/rows"
	"loxilb/internal/lb/report"
)

// FTPExpectations returns the data connections that services with the helper of FTP expect.
func (d *Datapath) FTPExpectations() (e report.FTPExpectations, err error) {
	var refused [bpf.TcFtpRefusalFTP_REFUSALS]uint64
	if err := d.collection.Variables.FtpRefusals.Get(&refused); err != nil {
		return e, fmt.Errorf("count refused data connections of FTP: %w", err)
	}
	e.Refused = map[string]uint64{
		"client": refused[bpf.TcFtpRefusalFTP_REFUSED_CLIENT],
		"port":   refused[bpf.TcFtpRefusalFTP_REFUSED_PORT],
		"tls":    refused[bpf.TcFtpRefusalFTP_REFUSED_TLS],
	}
	var services uint32
	if err := d.collection.Variables.FtpServices.Get(&services); err != nil {
		return e, fmt.Errorf("read the number of FTP services: %w", err)
	}
	if services > 0 {
		err = d.countExpectations(&e)
	}
	return e, err
}

// countExpectations reads the table of fragmented datagrams and data connections of FTP.
func (d *Datapath) countExpectations(e *report.FTPExpectations) error {
	now, err := loader.Now()
	if err != nil {
		return err
	}
	period := d.collection.Jiffies(time.Duration(bpf.TcHelperLimitFTP_EXPECT_SECONDS) * time.Second)
	table := d.collection.Maps.Fragments
	e.Max = uint64(table.MaxEntries())
	err = rows.EachBatch(table, rows.All, func(keys []bpf.TcExpectationKey, values []bpf.TcExpectation) {
		for i := range keys {
			if now-values[i].Since > period { // fragmented datagrams have the same timeout
				continue
			}
			e.Rows++
			switch bpf.TcExpectationKind(keys[i].Kind) {
			case bpf.TcExpectationKindEXPECT_PASSIVE, bpf.TcExpectationKindEXPECT_ACTIVE:
				if values[i].Opener == 0 {
					e.Expected++
				}
			}
		}
	})
	if err != nil {
		return fmt.Errorf("count expected data connections of FTP: %w", err)
	}
	return nil
}
