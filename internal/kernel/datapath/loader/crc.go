package loader

import (
	"encoding/binary"
	"hash/crc32"

	"loxilb/internal/kernel/datapath/bpf"
)

// newCRCTable returns struct sctp_crc of bpf/abi.h: constants with which the packet path updates
// the CRC32c of changed packets (bpf/protocol/sctp_crc.h).
func newCRCTable() []byte {
	byByte := crc32.MakeTable(crc32.Castagnoli)
	zeros := func(crc uint32, bytes int) uint32 {
		for range bytes {
			crc = crc>>8 ^ byByte[byte(crc)]
		}
		return crc
	}
	var b []byte
	power := uint32(1 << 31) // x^0
	for range bpf.TcSctpCrcLayoutSCTP_CRC_WORDS {
		b = binary.LittleEndian.AppendUint32(b, power)
		power = zeros(power, 4)
	}
	for at := range 4 {
		for n := range uint32(256) {
			b = binary.LittleEndian.AppendUint32(b, zeros(n<<(8*at), 4))
		}
	}
	for _, crc := range byByte {
		b = binary.LittleEndian.AppendUint32(b, crc)
	}
	return b
}
