-- Orders: each row is inserted once, and later updated once. One updated column has no index; four indexes do not change.
-- Half of a row is random, half is not.
CREATE SEQUENCE shipped_next INCREMENT 4 START 1 CACHE 1;
CREATE TABLE orders (
  id bigint GENERATED ALWAYS AS IDENTITY,
  customer integer NOT NULL,
  product integer NOT NULL,
  placed timestamptz NOT NULL,
  shipped timestamptz,
  amount integer NOT NULL,
  state integer NOT NULL,
  note text NOT NULL
) WITH (fillfactor = :fillfactor);
INSERT INTO orders (customer, product, placed, amount, state, note)
SELECT 1 + random() * 100000, 1 + random() * 10000, '2026-01-01'::timestamptz + n * interval '1 second', random() * 1000, 0,
       md5(n::text) || md5((-n)::text) || ' to be left at the door, if nobody is there; ring twice, please. '
FROM generate_series(1, :rows) AS n;
ALTER TABLE orders ADD PRIMARY KEY (id);
CREATE INDEX orders_customer ON orders (customer);
CREATE INDEX orders_product ON orders (product, placed);
CREATE INDEX orders_placed ON orders (placed);
