package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"time"

	"loxilb/internal/config"
	"loxilb/internal/kernel/datapath"
	"loxilb/internal/kernel/datapath/attach"
	"loxilb/internal/telemetry/logs"
)

// agentLooks is the interval of looks for interfaces that were created again.
const agentLooks = time.Second

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
		if err := decapsulate(d, name); err != nil {
			return err
		}
	}
	log.Info("outer headers are taken off", "interfaces", c.Interfaces, "vips", c.VIPs, "from", c.From, "gue_port", c.Port)
	looks := time.NewTicker(agentLooks)
	defer looks.Stop()
	followInterfaces(ctx, looks.C, c.Interfaces, func(name string) error { return decapsulate(d, name) }, log)
	counts, err := d.Counts()
	log.Info("stopped", "packets", counts)
	return err
}

// decapsulate attaches the program to the interface that has the name now.
func decapsulate(d *attach.Decap, name string) error {
	i, err := net.InterfaceByName(name)
	if err != nil {
		return fmt.Errorf("find interface %s: %w", name, err)
	}
	return d.Attach(datapath.Interface{Index: i.Index, Name: name, Layer3: len(i.HardwareAddr) == 0}, datapath.HookAuto)
}

// followInterfaces attaches to interfaces that were deleted and created again, until ctx ends. It
// logs each failure once.
func followInterfaces(ctx context.Context, looks <-chan time.Time, names []string, attach func(name string) error, log *slog.Logger) {
	failing := map[string]string{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-looks:
		}
		for _, name := range names {
			text := ""
			if err := attach(name); err != nil {
				text = err.Error()
			}
			switch {
			case text == failing[name]:
				continue
			case text != "":
				log.Error("outer headers are not taken off; trying again", "interface", name, "error", text)
			default:
				log.Info("outer headers are taken off again", "interface", name)
			}
			failing[name] = text
		}
	}
}
