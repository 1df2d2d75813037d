package main

import (
	"fmt"
	"strconv"
	"strings"

	"loxilb/test/packet/lab"
)

// lifeName names the row of a whole connection.
const lifeName = "life of a connection of 10 packets, IPv4"

// life returns a connection from its SYN to the last ACK: a request of 100 bytes and its answer.
func life() []string {
	const client, vip, endpoint = client4, "10.0.0.1:80", "192.168.1.10:8080"
	to, back := "client tcp "+client+" > "+vip, "server tcp "+endpoint+" > "+client
	return []string{
		to + " S seq 1000",
		back + " SA seq 5000 ack 1001",
		to + " A seq 1001 ack 5001",
		to + " PA seq 1001 ack 5001 len 100",
		back + " A seq 5001 ack 1101",
		back + " PA seq 5001 ack 1101 len 100",
		to + " A seq 1101 ack 5101",
		to + " FA seq 1101 ack 5101",
		back + " FA seq 5101 ack 1102",
		to + " A seq 1102 ack 5102",
	}
}

// measureLife runs connections one after the other, each from its first packet to the last.
func measureLife(l *lab.Lab, p *programs, round, port int) (pathCost, error) {
	c := pathCost{Path: lifeName}
	lines := life()
	for i, line := range lines {
		lines[i] = strings.ReplaceAll(line, "ROUND", strconv.Itoa(round))
	}
	if err := checkLife(l, lines, port+20_000); err != nil {
		return c, err
	}
	var own, empty []float64
	for n := range pathRuns + 1 {
		var sum float64
		for _, line := range lines {
			link, frame, err := build(l, line, port+n, "")
			if err != nil {
				return c, err
			}
			if n == 0 { // the first is counted
				lookups, helpers, err := p.calls(frame, link.Index)
				if err != nil {
					return c, err
				}
				c.Lookups, c.Helpers = c.Lookups+lookups, c.Helpers+helpers
				continue
			}
			e, err := took(p.empty, frame, link.Index)
			if err != nil {
				return c, err
			}
			t, err := took(p.live, frame, link.Index)
			if err != nil {
				return c, err
			}
			empty, sum = append(empty, e), sum+t
		}
		if n > 0 {
			own = append(own, sum)
		}
	}
	c.Empty = spreadOf(empty).Median * float64(len(lines))
	for i := range own {
		own[i] -= c.Empty
	}
	c.Own = innerSpread(own)
	return c, nil
}

// checkLife runs a connection and fails unless each of its packets goes out.
func checkLife(l *lab.Lab, lines []string, port int) error {
	for _, line := range lines {
		link, frame, err := build(l, line, port, "")
		if err != nil {
			return err
		}
		res, err := l.Send(link, frame)
		if err != nil {
			return err
		}
		if res.Verdict != "out" {
			return fmt.Errorf("%q: %s %s", line, res.Verdict, res.Reason)
		}
	}
	return nil
}
