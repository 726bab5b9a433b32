-- Four new orders, and the four oldest ones that are not shipped yet become so. The transactions run one behind the other on the
-- same pages, as a shop works off its orders.
\set customer random(1, 100000)
\set product random(1, 10000)
\set amount random(1, 1000)
SELECT nextval('shipped_next') AS first \gset
BEGIN;
INSERT INTO orders (customer, product, placed, amount, state, note)
SELECT :customer, (:product + n) % 10000, clock_timestamp(), :amount, 0,
       md5((:first + n)::text) || md5((-(:first) - n)::text) || ' to be left at the door, if nobody is there; ring twice, please. '
FROM generate_series(0, 3) AS n;
UPDATE orders SET shipped = clock_timestamp(), state = 1 WHERE id BETWEEN :first AND :first + 3;
COMMIT;
