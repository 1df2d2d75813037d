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

// interfaceCheckInterval is how often the agent looks for recreated interfaces.
const interfaceCheckInterval = time.Second

// agent decapsulates packets of tunnels until ctx ends.
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
	log.Info("decapsulating packets", "interfaces", c.Interfaces, "vips", c.VIPs, "from", c.From, "gue_port", c.Port)
	ticker := time.NewTicker(interfaceCheckInterval)
	defer ticker.Stop()
	followInterfaces(ctx, ticker.C, c.Interfaces, func(name string) error { return decapsulate(d, name) }, log)
	counts, err := d.Counts()
	log.Info("stopped", "packets", counts)
	return err
}

// decapsulate attaches the program to the interface that currently has the name.
func decapsulate(d *attach.Decap, name string) error {
	i, err := net.InterfaceByName(name)
	if err != nil {
		return fmt.Errorf("find interface %s: %w", name, err)
	}
	return d.Attach(datapath.Interface{Index: i.Index, Name: name, Layer3: len(i.HardwareAddr) == 0}, datapath.HookAuto)
}

// followInterfaces attaches the program to recreated interfaces, until ctx ends. It logs each
// failure once.
func followInterfaces(ctx context.Context, ticks <-chan time.Time, names []string, attach func(name string) error, log *slog.Logger) {
	failing := map[string]string{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks:
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
				log.Error("packets are not decapsulated; trying again", "interface", name, "error", text)
			default:
				log.Info("decapsulating packets again", "interface", name)
			}
			failing[name] = text
		}
	}
}
