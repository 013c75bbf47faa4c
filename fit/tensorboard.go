package fit

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"time"

	"ampc/internal/file"
)

// TensorBoard logs scalars to an event file in a folder, which TensorBoard shows as
// one run. A resumed run adds a file whose first event tells TensorBoard to forget what
// stands behind the step that it continues from.
func TensorBoard(folder string) Log { return &events{folder: folder} }

// events is a file of records (tensorflow/core/lib/io/record_writer.cc): the length of the data,
// its masked checksum, the data, and the data's masked checksum. The data is an Event
// (tensorflow/core/util/event.proto).
type events struct {
	folder, path string
	columns      []string
	f            *os.File
	w            *bufio.Writer
}

// Begin makes a file of its own.
func (e *events) Begin(columns []string, step int) error {
	e.columns, e.f = columns, nil
	if err := os.MkdirAll(e.folder, 0o777); err != nil {
		return file.Error(e.folder, err)
	}
	host, err := os.Hostname()
	if err != nil {
		host = "host"
	}
	now := time.Now()
	for at := 0; e.f == nil; at++ {
		e.path = filepath.Join(e.folder, fmt.Sprintf("events.out.tfevents.%010d.%s.%d.%d", now.Unix(), host, os.Getpid(), at))
		if e.f, err = os.OpenFile(e.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666); err != nil && !errors.Is(err, os.ErrExist) {
			return file.Error(e.path, err)
		}
	}
	e.w = bufio.NewWriter(e.f)
	err = e.event(now, 0, bytesField(nil, eventVersion, []byte("brain.Event:2")))
	if err == nil && step > 0 {
		started := varintField(nil, sessionStatus, sessionStart)
		err = e.event(now, step+1, bytesField(nil, eventSession, started))
	}
	return err
}

// fields of the messages, and values of their enums
const (
	eventWallTime, eventStep, eventVersion, eventSummary, eventSession = 1, 2, 3, 5, 7

	summaryValue           = 1
	valueTag, valueNumber  = 1, 2
	sessionStatus          = 1
	sessionStart           = 1
	wireVarint, wireDouble = 0, 1
	wireBytes, wireFloat   = 2, 5
)

// Write adds an event with the row's numbers.
func (e *events) Write(r Row) error {
	var summary []byte
	for _, c := range e.columns {
		if x, there := r.Values[c]; there {
			value := bytesField(nil, valueTag, []byte(c))
			value = binary.AppendUvarint(value, valueNumber<<3|wireFloat)
			value = binary.LittleEndian.AppendUint32(value, math.Float32bits(float32(x)))
			summary = bytesField(summary, summaryValue, value)
		}
	}
	return e.event(r.Time, r.Step, bytesField(nil, eventSummary, summary))
}

// event writes a record. what is the field that holds the content of the event.
func (e *events) event(at time.Time, step int, what []byte) error {
	data := binary.AppendUvarint(nil, eventWallTime<<3|wireDouble)
	data = binary.LittleEndian.AppendUint64(data, math.Float64bits(float64(at.UnixMicro())/1e6))
	if step != 0 { // as protobuf writes it
		data = varintField(data, eventStep, uint64(step))
	}
	data = append(data, what...)
	length := binary.LittleEndian.AppendUint64(nil, uint64(len(data)))
	record := binary.LittleEndian.AppendUint32(length, masked(length))
	record = append(record, data...)
	_, err := e.w.Write(binary.LittleEndian.AppendUint32(record, masked(data)))
	return e.worded(err)
}

func varintField(to []byte, field int, x uint64) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(to, uint64(field<<3|wireVarint)), x)
}

func bytesField(to []byte, field int, b []byte) []byte {
	to = binary.AppendUvarint(to, uint64(field<<3|wireBytes))
	return append(binary.AppendUvarint(to, uint64(len(b))), b...)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// masked is a CRC-32C, rotated and offset. This masking keeps the checksum strong for data that
// contains checksums.
func masked(b []byte) uint32 {
	c := crc32.Checksum(b, castagnoli)
	return (c>>15 | c<<17) + 0xa282ead8
}

// Flush passes the events to the operating system.
func (e *events) Flush() error { return e.worded(e.w.Flush()) }

// Close flushes and closes the file.
func (e *events) Close() error {
	if e.f == nil {
		return nil
	}
	return errors.Join(e.Flush(), e.worded(e.f.Close()))
}

func (e *events) worded(err error) error {
	if err == nil {
		return nil
	}
	return file.Error(e.path, err)
}
