package clients

import (
	"bytes"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// TestMain makes the test's own program the small training program of the launchers:
// {self} ring.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "ring" {
		if err := ring(os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "ring:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// blockSize is what each rank gives to the others.
const blockSize = 1 << 20

// ring gathers a block of each rank at every rank over TCP, as libraries of collectives
// do: ranks find each other at MASTER_ADDR:MASTER_PORT, where rank 0 listens, and then
// each passes to its successor what its predecessor has sent.
func ring(out io.Writer) error {
	rank, err := strconv.Atoi(os.Getenv("RANK"))
	if err != nil {
		return fmt.Errorf("RANK: %w", err)
	}
	size, err := strconv.Atoi(os.Getenv("WORLD_SIZE"))
	if err != nil {
		return fmt.Errorf("WORLD_SIZE: %w", err)
	}
	master := net.JoinHostPort(os.Getenv("MASTER_ADDR"), os.Getenv("MASTER_PORT"))
	own, err := net.Listen("tcp", net.JoinHostPort(os.Getenv("MASTER_ADDR"), "0"))
	if err != nil {
		return err
	}
	defer own.Close()
	if rank == 0 {
		store, err := net.Listen("tcp", master)
		if err != nil {
			return err
		}
		served := make(chan error, 1)
		go func() { served <- introduce(store, size) }()
		defer func() {
			store.Close()
			<-served
		}()
	}
	addresses, err := meet(master, rank, own.Addr().String())
	if err != nil {
		return err
	}
	next, err := net.Dial("tcp", addresses[(rank+1)%size])
	if err != nil {
		return err
	}
	defer next.Close()
	previous, err := own.Accept()
	if err != nil {
		return err
	}
	defer previous.Close()
	block := bytes.Repeat([]byte{byte(rank)}, blockSize)
	for hop := 1; hop < size; hop++ {
		sent := make(chan error, 1)
		go func() {
			_, err := next.Write(block)
			sent <- err
		}()
		received := make([]byte, blockSize)
		if _, err := io.ReadFull(previous, received); err != nil {
			return err
		}
		if err := <-sent; err != nil {
			return err
		}
		block = received
		of := (rank - hop + size) % size
		if !bytes.Equal(block, bytes.Repeat([]byte{byte(of)}, blockSize)) {
			return fmt.Errorf("rank %d: the block of rank %d is not what that has sent", rank, of)
		}
	}
	_, err = fmt.Fprintf(out, "rank %d of %d gathered %d blocks\n", rank, size, size)
	return err
}

// introduction is a rank and where it listens.
type introduction struct {
	Rank    int
	Address string
}

// introduce tells all ranks where each of them listens.
func introduce(store net.Listener, size int) error {
	addresses := make([]string, size)
	var ranks []net.Conn
	for range size {
		conn, err := store.Accept()
		if err != nil {
			return err
		}
		defer conn.Close()
		var one introduction
		if err := gob.NewDecoder(conn).Decode(&one); err != nil {
			return err
		}
		if one.Rank < 0 || one.Rank >= size || addresses[one.Rank] != "" {
			return fmt.Errorf("rank %d of %d came twice or is not one", one.Rank, size)
		}
		addresses[one.Rank] = one.Address
		ranks = append(ranks, conn)
	}
	for _, conn := range ranks {
		if err := gob.NewEncoder(conn).Encode(addresses); err != nil {
			return err
		}
	}
	return nil
}

// meet tells rank 0 where this rank listens, once that is there, and learns it of all.
func meet(master string, rank int, address string) ([]string, error) {
	for {
		conn, err := net.Dial("tcp", master)
		if errors.Is(err, syscall.ECONNREFUSED) {
			time.Sleep(50 * time.Millisecond) // rank 0 may begin last
			continue
		}
		if err != nil {
			return nil, err
		}
		defer conn.Close()
		if err := gob.NewEncoder(conn).Encode(introduction{rank, address}); err != nil {
			return nil, err
		}
		var all []string
		err = gob.NewDecoder(conn).Decode(&all)
		return all, err
	}
}
