package diagnose

import (
	"encoding/binary"
	"fmt"
	"io"
	"time"

	v1 "loxilb/api/v1"
)

// Constants of pcapng (draft-ietf-opsawg-pcapng).
const (
	blockSection, blockInterface, blockPacket = 0x0a0d0d0a, 1, 6

	linkEthernet, linkRaw = 1, 101

	optionEnd, optionComment, optionName, optionFlags, optionResolution = 0, 1, 2, 2, 9
	inbound, outbound                                                   = 1, 2
)

// capture writes packets for Wireshark, each as it arrived and as it left, with its outcome.
type capture struct {
	w       io.Writer
	devices map[device]uint32
}

// device is an interface of the file.
type device struct {
	name   string
	layer3 bool
}

func newCapture(w io.Writer) *capture { return &capture{w: w} }

func (c *capture) write(p *v1.PacketTrace) error {
	var out []byte
	if c.devices == nil {
		c.devices = map[device]uint32{}
		out = section(out)
	}
	out = c.packet(out, p.In, p.Time, inbound, &p.Before, comment(p))
	if p.After != nil {
		name := p.Out
		if name == "" {
			name = p.In
		}
		out = c.packet(out, name, p.Time.Add(time.Duration(p.Took)), outbound, p.After, p.Verdict+": as it left")
	}
	_, err := c.w.Write(out)
	return err
}

// comment returns the outcome of a packet.
func comment(p *v1.PacketTrace) string {
	text := p.Verdict
	if p.Reason != "" {
		text += " (" + p.Reason + ")"
	}
	if p.Out != "" {
		text += " by " + p.Out
	}
	return fmt.Sprintf("%s, at %s, after %s", text, p.Point, time.Duration(p.Took))
}

func section(out []byte) []byte {
	body := binary.LittleEndian.AppendUint32(nil, 0x1a2b3c4d)
	body = binary.LittleEndian.AppendUint16(body, 1)
	body = binary.LittleEndian.AppendUint16(body, 0)
	return block(out, blockSection, binary.LittleEndian.AppendUint64(body, ^uint64(0))) // of any length
}

// packet appends a packet, preceded by its interface if that is not in the file yet.
func (c *capture) packet(out []byte, name string, at time.Time, direction uint32, v *v1.PacketView, text string) []byte {
	d := device{name, v.Layer3}
	id, known := c.devices[d]
	if !known {
		id = uint32(len(c.devices))
		c.devices[d] = id
		link := uint32(linkEthernet)
		if d.layer3 {
			link = linkRaw
		}
		body := binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, link), 0) // packets of any length
		body = option(body, optionName, []byte(name))
		out = block(out, blockInterface, option(option(body, optionResolution, []byte{9}), optionEnd, nil))
	}
	body := binary.LittleEndian.AppendUint32(nil, id)
	for _, n := range []uint32{uint32(at.UnixNano() >> 32), uint32(at.UnixNano()), uint32(len(v.Data)), uint32(max(v.Length, len(v.Data)))} {
		body = binary.LittleEndian.AppendUint32(body, n)
	}
	body = padded(append(body, v.Data...))
	body = option(body, optionFlags, binary.LittleEndian.AppendUint32(nil, direction))
	return block(out, blockPacket, option(option(body, optionComment, []byte(text)), optionEnd, nil))
}

func block(out []byte, kind uint32, body []byte) []byte {
	size := uint32(12 + len(body))
	out = binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(out, kind), size)
	return binary.LittleEndian.AppendUint32(append(out, body...), size)
}

func option(body []byte, code uint16, value []byte) []byte {
	body = binary.LittleEndian.AppendUint16(binary.LittleEndian.AppendUint16(body, code), uint16(len(value)))
	return padded(append(body, value...))
}

// padded appends zeros up to a length that is a multiple of 4.
func padded(b []byte) []byte { return append(b, make([]byte, -len(b)&3)...) }
