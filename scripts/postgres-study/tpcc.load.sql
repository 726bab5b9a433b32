-- The tables of TPC-C that are updated, with its row widths and indexes, two warehouses by default. The transactions are
-- functions, so that the client costs little. This is like TPC-C in its updates; it is not TPC-C, and no figure is a tpmC.
CREATE TABLE warehouse (w_id integer, w_ytd bigint, w_note text) WITH (fillfactor = :fillfactor);
CREATE TABLE district (d_w_id integer, d_id integer, d_next_o_id integer, d_next_delivery integer, d_ytd bigint, d_note text)
  WITH (fillfactor = :fillfactor);
CREATE TABLE customer (
  c_w_id integer, c_d_id integer, c_id integer, c_last text, c_first text, c_balance bigint, c_ytd_payment bigint,
  c_payment_cnt integer, c_delivery_cnt integer, c_data text
) WITH (fillfactor = :fillfactor);
CREATE TABLE stock (
  s_w_id integer, s_i_id integer, s_quantity integer, s_ytd integer, s_order_cnt integer, s_remote_cnt integer, s_dist text
) WITH (fillfactor = :fillfactor);
CREATE TABLE orders (
  o_w_id integer, o_d_id integer, o_id integer, o_c_id integer, o_entry timestamptz, o_carrier_id integer, o_ol_cnt integer
) WITH (fillfactor = :fillfactor);
CREATE TABLE order_line (
  ol_w_id integer, ol_d_id integer, ol_o_id integer, ol_number integer, ol_i_id integer, ol_delivery timestamptz,
  ol_quantity integer, ol_amount bigint, ol_dist_info text
) WITH (fillfactor = :fillfactor);
CREATE TABLE history (h_c_id integer, h_d_id integer, h_w_id integer, h_date timestamptz, h_amount bigint, h_data text)
  WITH (fillfactor = :fillfactor);

INSERT INTO warehouse SELECT w, 0, md5(w::text) FROM generate_series(1, :warehouses) w;
INSERT INTO district SELECT w, d, 3001, 2101, 0, md5(d::text)
FROM generate_series(1, :warehouses) w, generate_series(1, 10) d;
INSERT INTO customer
SELECT w, d, c, 'LAST' || (c * 7919 % 1000), md5(c::text), -1000, 1000, 1, 0,
       (SELECT string_agg(md5((w * 7 + d * 11 + c + n)::text), '') FROM generate_series(1, 7) n)
       || repeat('pays in time, and asks for the goods to be there in the morning. ', 3)
FROM generate_series(1, :warehouses) w, generate_series(1, 10) d, generate_series(1, 3000) c;
INSERT INTO stock
SELECT w, i, 10 + i % 90, 0, 0, 0,
       md5((w + i)::text) || md5((i * 3)::text) || md5((i * 5)::text) || md5((i * 7)::text) || repeat('district information and data, ', 5)
FROM generate_series(1, :warehouses) w, generate_series(1, 100000) i;
INSERT INTO orders
SELECT w, d, o, 1 + (o * 7919) % 3000, now(), CASE WHEN o <= 2100 THEN 1 + o % 10 END, 10
FROM generate_series(1, :warehouses) w, generate_series(1, 10) d, generate_series(1, 3000) o;
INSERT INTO order_line
SELECT w, d, o, l, 1 + (random() * 99999)::integer, CASE WHEN o <= 2100 THEN now() END, 5, random() * 10000,
       left(md5((o * 10 + l)::text), 24)
FROM generate_series(1, :warehouses) w, generate_series(1, 10) d, generate_series(1, 3000) o, generate_series(1, 10) l;

ALTER TABLE warehouse ADD PRIMARY KEY (w_id);
ALTER TABLE district ADD PRIMARY KEY (d_w_id, d_id);
ALTER TABLE customer ADD PRIMARY KEY (c_w_id, c_d_id, c_id);
CREATE INDEX customer_last ON customer (c_w_id, c_d_id, c_last, c_first);
ALTER TABLE stock ADD PRIMARY KEY (s_w_id, s_i_id);
ALTER TABLE orders ADD PRIMARY KEY (o_w_id, o_d_id, o_id);
CREATE UNIQUE INDEX orders_customer ON orders (o_w_id, o_d_id, o_c_id, o_id);
ALTER TABLE order_line ADD PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number);
CREATE INDEX order_line_stock ON order_line (ol_w_id, ol_i_id);

CREATE FUNCTION new_order(w integer, d integer, c integer, lines integer) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  o integer;
  i integer;
  amount integer;
BEGIN
  UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = w AND d_id = d RETURNING d_next_o_id - 1 INTO o;
  INSERT INTO orders VALUES (w, d, o, c, now(), NULL, lines);
  -- In the order of the items, so that two of these do not wait for each other.
  FOR l IN 1 .. lines LOOP
    i := 1 + (100000 / lines) * (l - 1) + (random() * (100000 / lines - 1))::integer;
    UPDATE stock SET s_quantity = CASE WHEN s_quantity > 14 THEN s_quantity - 5 ELSE s_quantity + 86 END, s_ytd = s_ytd + 5,
      s_order_cnt = s_order_cnt + 1 WHERE s_w_id = w AND s_i_id = i RETURNING s_quantity INTO amount;
    INSERT INTO order_line VALUES (w, d, o, l, i, NULL, 5, amount * 10, left(md5(i::text), 24));
  END LOOP;
END $$;

CREATE FUNCTION payment(w integer, d integer, c integer, amount integer) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  UPDATE customer SET c_balance = c_balance - amount, c_ytd_payment = c_ytd_payment + amount, c_payment_cnt = c_payment_cnt + 1
    WHERE c_w_id = w AND c_d_id = d AND c_id = c;
  INSERT INTO history VALUES (c, d, w, now(), amount, 'warehouse and district');
  UPDATE district SET d_ytd = d_ytd + amount WHERE d_w_id = w AND d_id = d;
  UPDATE warehouse SET w_ytd = w_ytd + amount WHERE w_id = w;
END $$;

-- One district; TPC-C takes all ten of a warehouse in one transaction.
CREATE FUNCTION delivery(w integer, d integer, carrier integer) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  o integer;
  c integer;
  total bigint;
BEGIN
  UPDATE district SET d_next_delivery = d_next_delivery + 1 WHERE d_w_id = w AND d_id = d AND d_next_delivery < d_next_o_id
    RETURNING d_next_delivery - 1 INTO o;
  IF o IS NULL THEN RETURN; END IF;
  UPDATE orders SET o_carrier_id = carrier WHERE o_w_id = w AND o_d_id = d AND o_id = o RETURNING o_c_id INTO c;
  UPDATE order_line SET ol_delivery = now() WHERE ol_w_id = w AND ol_d_id = d AND ol_o_id = o;
  SELECT sum(ol_amount) INTO total FROM order_line WHERE ol_w_id = w AND ol_d_id = d AND ol_o_id = o;
  UPDATE customer SET c_balance = c_balance + total, c_delivery_cnt = c_delivery_cnt + 1
    WHERE c_w_id = w AND c_d_id = d AND c_id = c;
END $$;
