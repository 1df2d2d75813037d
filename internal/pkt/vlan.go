package pkt

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
)

const (
	typeIPv4  = 0x0800
	typeIPv6  = 0x86dd
	typeVLAN  = 0x8100
	typeVLAN2 = 0x88a8 // 802.1ad, written ad:
)

// vlanTag is one element of `vlan ad:100,5.3`: tags from the outer to the inner, each an id and,
// after a dot, the priority when it is not 0.
type vlanTag struct {
	ad       bool
	id, prio uint16
}

func parseVLAN(text string) ([]vlanTag, error) {
	var tags []vlanTag
	for word := range strings.SplitSeq(text, ",") {
		var tag vlanTag
		word, tag.ad = strings.CutPrefix(word, "ad:")
		id, prio, dotted := strings.Cut(word, ".")
		if !dotted {
			prio = "0"
		}
		n, err := strconv.ParseUint(id, 10, 12)
		if err != nil {
			return nil, fmt.Errorf("vlan %q: an id is 0 to 4095", word)
		}
		m, err := strconv.ParseUint(prio, 10, 3)
		if err != nil {
			return nil, fmt.Errorf("vlan %q: a priority is 0 to 7", word)
		}
		tag.id, tag.prio = uint16(n), uint16(m)
		if tags = append(tags, tag); len(tags) > 8 {
			return nil, fmt.Errorf("vlan %q: more than 8 tags", text)
		}
	}
	return tags, nil
}

func formatVLAN(tags []vlanTag) string {
	var words []string
	for _, tag := range tags {
		word := strconv.Itoa(int(tag.id))
		if tag.ad {
			word = "ad:" + word
		}
		if tag.prio != 0 {
			word += "." + strconv.Itoa(int(tag.prio))
		}
		words = append(words, word)
	}
	return strings.Join(words, ",")
}

func appendVLAN(b []byte, tags []vlanTag) []byte {
	for _, tag := range tags {
		tpid := uint16(typeVLAN)
		if tag.ad {
			tpid = typeVLAN2
		}
		b = binary.BigEndian.AppendUint16(b, tpid)
		b = binary.BigEndian.AppendUint16(b, tag.prio<<13|tag.id)
	}
	return b
}

// cutVLAN removes the tags from b, which starts at an Ethernet type. Tags with the drop-eligible
// bit stay, since the language cannot express the bit.
func cutVLAN(b []byte) (tags []vlanTag, rest []byte) {
	for len(b) >= 6 && len(tags) < 8 {
		tpid, tci := binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
		if tpid != typeVLAN && tpid != typeVLAN2 || tci&0x1000 != 0 {
			break
		}
		tags = append(tags, vlanTag{ad: tpid == typeVLAN2, id: tci & 0xfff, prio: tci >> 13})
		b = b[4:]
	}
	return tags, b
}
