package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"

	"loxilb/internal/config"
	"loxilb/internal/kernel/datapath"
	"loxilb/internal/kernel/datapath/attach"
	"loxilb/internal/telemetry/logs"
)

// agent takes outer headers off until ctx ends.
func agent(ctx context.Context, c *config.Agent) (err error) {
	log, flush := logs.New(slog.LevelInfo, io.Discard, os.Stderr)
	defer flush()
	d, err := attach.LoadDecap(attach.DecapConfig{VIPs: c.VIPs, From: c.From, Port: c.Port})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	for _, name := range c.Interfaces {
		i, err := net.InterfaceByName(name)
		if err != nil {
			return fmt.Errorf("find interface %s: %w", name, err)
		}
		if err := d.Attach(datapath.Interface{Index: i.Index, Name: name, Layer3: len(i.HardwareAddr) == 0}, datapath.HookAuto); err != nil {
			return err
		}
	}
	log.Info("outer headers are taken off", "interfaces", c.Interfaces, "vips", c.VIPs, "from", c.From, "gue_port", c.Port)
	<-ctx.Done()
	counts, err := d.Counts()
	log.Info("stopped", "packets", counts)
	return err
}
